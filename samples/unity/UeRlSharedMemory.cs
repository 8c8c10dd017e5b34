// Shared memory for UeRlBridge.cs (docs/shared-memory.md): copy this file beside it, and each trainer on the same
// machine is offered it in the handshake. A trainer that does not take it speaks text, as without this file.
//
// Without `unsafe` and without a dependency: a memory-mapped file, Marshal.Copy for the arrays and Marshal.Read/Write
// for the words of the header, each between memory barriers. Only in a process of 64 bits: 32 tear the counters in two.
// Not in this file: command rings. So nothing is offered where the spec has OPTIONS, INFO, parameters or calls, which
// travel in them, and everything goes over text.

using System;
using System.Diagnostics;
using System.IO;
using System.IO.MemoryMappedFiles;
using System.Net.Sockets;
using System.Runtime.InteropServices;
using System.Security.Cryptography;
using System.Text;
using System.Threading;

namespace UeRl
{
    public sealed partial class UeRlBridge
    {
        /// <summary>False: no shared memory from the next trainer on.</summary>
        public bool OfferSharedMemory = true;
        private const double LongestSpin = 300e-6, ShortestSpin = 2e-6; // seconds; waking a blocked process takes 35 us
        private const int MostHandshake = 65000; // with the offer behind it it is below 64 KiB
        private const int SliceMs = 20; // the heartbeat is counted at least so often
        private static readonly byte[] Bell = { 1 };
        private UeRlSegment _segment; // on offer, or of the session
        private bool _inMemory;
        private bool _told; // why there is nothing to offer has been logged
        // Who was off its core for so long made room for another process, and spins no more for a while: where cores are
        // short it would only wait longer for its turn. Each further such while is twice as long.
        private const double PushedOff = 100e-6, FirstPause = 0.05, LongestPause = 1.6;
        private double _noSpinBefore, _pause;
        private double _spin = LongestSpin;
        private int _waits;

        partial void Offer(ref string handshake)
        {
            bool rings = _codec.TakesCalls || Spec.Has("OPTIONS") || Spec.Has("INFO");
            if (!OfferSharedMemory || rings || IntPtr.Size < 8 || _handshake.Length > MostHandshake) return;
            try
            {
                _segment = new UeRlSegment(_codec.Rows, Spec.Groups.Count > 0, _handshake);
            }
            catch (Exception error) // whatever this platform cannot do: text goes everywhere
            {
                if (!_told) Log("no shared memory to offer: " + error.Message);
                _told = true;
                return;
            }
            handshake += ";SHM=" + UeRlText.Percent(_segment.Name) + ":" + UeRlSegment.Hex(_segment.Token);
        }

        /// <summary>Is this first line the answer to the offer? Any other one withdraws it.</summary>
        partial void AcceptOffer(UeRlConnection one, int start, int end, ref bool taken)
        {
            if (_inMemory) taken = true; // bytes of the doorbell, whatever they are
            if (_inMemory || _segment == null) return;
            string line = Encoding.ASCII.GetString(one.In, start, Math.Min(end - start, 128)).ToUpperInvariant();
            if (one != _members[0] || !line.StartsWith("SHM=ACCEPT", StringComparison.Ordinal))
            {
                Withdraw();
                return;
            }
            taken = true;
            int proof = line.IndexOf("PROOF=", StringComparison.Ordinal);
            if (proof < 0 || line.Substring(proof + 6).Trim() != UeRlSegment.Hex(_segment.Proof))
            {
                Withdraw();
                one.Send("SHM=REFUSED;WHY=" + UeRlText.Percent("the proof is not this segment's"));
                return;
            }
            one.Send("SHM=READY");
            _segment.Unlink(); // both sides have it: nobody else needs its name
            _inMemory = _shared = true;
            _spin = LongestSpin;
        }

        private void Withdraw()
        {
            if (_segment != null) _segment.Dispose();
            _segment = null;
            _inMemory = false;
        }

        partial void WaitForMemory(int milliseconds, ref bool waited)
        {
            if (!_inMemory) return;
            waited = true;
            UeRlSegment segment = _segment;
            // now and then at full length: else a busy moment would make each later wait block
            double begun = Now, longest = ++_waits % 32 == 0 ? LongestSpin : _spin;
            double before = begun;
            if (begun < _noSpinBefore) longest = 0;
            while (segment.Asked() == segment.Seen)
            {
                double now = Now;
                if (now - before > PushedOff)
                {
                    if (now >= _noSpinBefore)
                        _pause = now < _noSpinBefore + _pause ? Math.Min(2 * _pause, LongestPause) : FirstPause;
                    _noSpinBefore = now + _pause;
                    longest = 0;
                }
                before = now;
                if (now - begun < longest)
                {
                    Thread.SpinWait(20); // to yield would put it behind everyone else who waits for this core
                    continue;
                }
                _spin = Math.Max(_spin / 2, ShortestSpin);
                segment.Sleeps(true);
                int slice = Math.Max(0, Math.Min(milliseconds, SliceMs));
                if (segment.Asked() == segment.Seen) _members[0].Socket.Poll(1000 * slice, SelectMode.SelectRead);
                segment.Sleeps(false);
                return;
            }
            _spin = Math.Min(Math.Max(_spin, Now - begun) * 2, LongestSpin);
        }

        partial void ReadMemory(ref bool mine)
        {
            if (!_inMemory) return;
            mine = true;
            _segment.Beat();
            long asked = _segment.Asked();
            if (asked == _segment.Seen)
            {
                UeRlConnection one = _members[0];
                one.Read(EarlyBytes); // doorbells, and the trainer's end
                one.Head = one.Tail = one.Searched = 0;
                if (one.Gone) End("the trainer has gone", false);
                return;
            }
            bool once = asked == _segment.Seen + 1 && _codec.Open == 0;
            _segment.Seen = asked;
            if (!once) throw UeRlCodec.Broken("it asked before its answer");
            _segment.Take();
            _codec.TakeRows(_segment);
        }

        partial void SendFrame(ref bool mine)
        {
            if (!_inMemory) return;
            mine = true;
            if (_codec.Ready == _codec.Open)
            {
                _codec.WriteRows(_segment);
                _segment.Publish();
            }
            else _segment.PublishPart(_codec);
            if (_codec.Open == 0) RingBell();
        }

        private void RingBell()
        {
            SocketError error; // a full socket is full of doorbells already; that one is closed shows when it is read
            if (_segment.PeerSleeps()) _members[0].Socket.Send(Bell, 0, 1, SocketFlags.None, out error);
        }

        partial void LeaveMemory(string why, bool tell, ref bool mine)
        {
            mine = _inMemory;
            if (_inMemory) _segment.Close(tell ? why : null);
            Withdraw();
        }
    }

    internal sealed partial class UeRlCodec
    {
        /// <summary>Takes the request that the segment has copied.</summary>
        internal void TakeRows(UeRlSegment from)
        {
            byte[] ask = from.Ask;
            for (int env = 0; env < Asks.Length; env++)
            {
                int first = env * _agents, asked = 0, resets = 0;
                for (int place = 0; place < _agents; place++)
                {
                    int kind = ask[first + place];
                    if (kind == 0) continue;
                    asked++;
                    if (kind == 1) TakeNumbers(env, first + place, place, from.Actions);
                    else if (kind == 2) resets++;
                    else throw Broken("ask of env " + UeRlText.Integer(env) + " is neither 0, 1 nor 2");
                }
                if (asked == 0) continue;
                if (resets > 0 && resets < _agents)
                    throw Broken("some agents of env " + UeRlText.Integer(env) + " are reset, others are not");
                Asks[env] = resets > 0 ? Ask.Reset : Ask.Action;
                if (resets > 0) Seeds[env] = Math.Max(-1, from.Seed(first));
                Open++;
            }
        }

        private void TakeNumbers(int env, int row, int place, float[] from)
        {
            UeRlLayout layout = _layouts[place];
            for (int i = 0, at = row * _act; i < _actSizes[place]; i++, at++)
            {
                float value = from[at];
                if (!(Math.Abs(value) <= float.MaxValue))
                    throw Broken("ACT of env " + UeRlText.Integer(env) + " is not a finite number");
                if (!layout.Fits(i, value))
                    throw Broken("ACT of env " + UeRlText.Integer(env) + " is no choice of " + layout.Low[i] + " to "
                        + layout.High[i]);
                Rows.Actions[at] = value;
            }
            Rows.Asked[row] = true;
        }

        /// <summary>The rows of all envs that are ready, as EncodeRow writes them as text.</summary>
        internal void WriteRows(UeRlSegment into)
        {
            int low = Rows.NumRows, high = 0;
            for (int env = 0; env < Asks.Length && Open > 0; env++)
            {
                if (Asks[env] != Ask.Answered) continue;
                low = Math.Min(low, env * _agents);
                high = (env + 1) * _agents;
                for (int place = 0; place < _agents; place++)
                {
                    int row = env * _agents + place;
                    bool there = Rows.Asked[row] || (Rows.Comes[row] && !Rows.Here[row]);
                    into.Present[row] = (byte)(there ? 1 : 0);
                    if (!there) continue;
                    bool over = Rows.Terminated[row] || Rows.Truncated[row];
                    WriteRow(into, env, place, row, over);
                    Rows.Here[row] = !(Rows.Asked[row] && over);
                    Rows.Asked[row] = Rows.Comes[row] = false;
                }
                Asks[env] = Ask.Nothing;
                Open--;
                Ready--;
            }
            into.Copy(low, high - low);
        }

        private void WriteRow(UeRlSegment into, int env, int place, int row, bool over)
        {
            float[] obs = Rows.Observations, copy = into.Observations;
            for (int i = 0, at = row * _obs; i < _obsSizes[place]; i++, at++)
            {
                float value = obs[at];
                if (!(Math.Abs(value) <= float.MaxValue)) throw NotFinite("observation " + i, env, value);
                copy[at] = value;
            }
            float reward = Rows.Rewards[row];
            if (!(Math.Abs(reward) <= float.MaxValue)) throw NotFinite("reward", env, reward);
            into.Rewards[row] = reward;
            into.Dones[row] = (byte)(over ? 1 : 0);
            into.Truncateds[row] = (byte)(Rows.Truncated[row] && !Rows.Terminated[row] ? 1 : 0);
            Rows.Infos[row] = null; // INFO travels in text only
            if (!_masks) return;
            CheckMask(env, row, _layouts[place], over);
            Buffer.BlockCopy(Rows.Masks, row * Rows.MaskSize, into.Masks, row * Rows.MaskSize, Rows.MaskSize);
        }
    }

    /// <summary>The memory of one session: the header, and a copy of each region on this side of the trust.</summary>
    internal sealed class UeRlSegment : IDisposable
    {
        internal readonly string Name;
        internal readonly byte[] Token = Random(), Proof = Random();
        internal readonly float[] Observations, Rewards, Actions;
        internal readonly byte[] Dones, Truncateds, Masks, Present, Ask;
        internal long Seen; // the action_seq that was taken last
        private const int ClientPid = 12, FrameSeq = 32, ActionSeq = 40, EngineFlag = 264, ClientFlag = 268;
        private const int Heartbeat = 272, ServerState = 280, ClientState = 284, AnsweredSeq = 288, ReasonPid = 372;
        private const int ClientSince = 376, Reason = 384, MostReason = 1023;
        private readonly UeRlRows _rows;
        private readonly int _obs, _act, _rewards, _dones, _truncateds, _ask, _answered, _seeds, _masks, _present;
        private readonly byte[] _part; // flags of envs that have been answered
        private MemoryMappedFile _file;
        private MemoryMappedViewAccessor _view;
        private readonly IntPtr _base;
        private string _path; // of the file to delete; null: there is none any more
        private long _size = 4096, _beats, _frames;

        internal UeRlSegment(UeRlRows rows, bool agents, string config)
        {
            _rows = rows;
            int n = rows.NumRows;
            byte[] text = Encoding.ASCII.GetBytes(config);
            _obs = Place(4L * n * rows.ObsSize);
            _act = Place(4L * n * rows.ActSize);
            _rewards = Place(4L * n);
            _dones = Place(n);
            _truncateds = Place(n);
            int resets = Place(n);
            _ask = Place(n);
            _answered = Place(n);
            _seeds = Place(8L * n);
            int configAt = Place(text.Length);
            _masks = Place((long)n * rows.MaskSize);
            _present = agents ? Place(n) : 0;
            _size = (_size + 4095) / 4096 * 4096;
            Observations = new float[n * rows.ObsSize];
            Actions = new float[n * rows.ActSize];
            Rewards = new float[n];
            Dones = new byte[n];
            Truncateds = new byte[n];
            Masks = new byte[n * rows.MaskSize];
            Present = new byte[n];
            Ask = new byte[n];
            _part = new byte[n];
            try
            {
                Name = Map();
                _view = _file.CreateViewAccessor(0, _size);
                _base = _view.SafeMemoryMappedViewHandle.DangerousGetHandle(); // it lives as long as _view
            }
            catch
            {
                Dispose();
                throw;
            }
            int[] head = { 0, 1, Process.GetCurrentProcess().Id, 0, 0, n, rows.ObsSize, rows.ActSize };
            Marshal.Copy(head, 0, _base, head.Length);
            long[] offsets = { _obs, _act, _rewards, _dones, resets };
            Marshal.Copy(offsets, 0, _base + 48, offsets.Length);
            Put(208, 0x58524555);
            Put(212, 1);
            Marshal.WriteInt64(_base, 216, _size);
            Marshal.Copy(Token, 0, _base + 224, 16);
            Marshal.Copy(Proof, 0, _base + 240, 16);
            long[] extension = { _ask, _answered, _seeds, configAt };
            Marshal.Copy(extension, 0, _base + 296, extension.Length);
            Put(328, text.Length);
            Put(332, _truncateds - _dones);
            if (rows.MaskSize > 0) Marshal.WriteInt64(_base, 352, _masks);
            Marshal.WriteInt64(_base, 360, _present);
            Put(368, rows.MaskSize);
            Marshal.Copy(text, 0, _base + configAt, text.Length);
            for (int row = 0; row < n; row++) Marshal.WriteInt64(_base, _seeds + 8 * row, -1);
            Put(0, 0x4C524243); // who reads the magic finds all of the header
            Put(ServerState, 1);
        }

        private int Place(long size)
        {
            long at = _size;
            _size = (at + size + 63) / 64 * 64;
            if (_size > int.MaxValue - 8192) throw new NotSupportedException("a segment of more than 2 GiB");
            return (int)at;
        }

        private static byte[] Random()
        {
            var bytes = new byte[16];
            using (RandomNumberGenerator source = RandomNumberGenerator.Create()) source.GetBytes(bytes);
            return bytes;
        }

        internal static string Hex(byte[] bytes)
        {
            return BitConverter.ToString(bytes).Replace("-", "");
        }

        // -- the mapping

        [DllImport("libc", EntryPoint = "mkstemp", SetLastError = true)]
        private static extern int MakeFile([In, Out] byte[] template);

        [DllImport("libc", EntryPoint = "close")]
        private static extern int CloseFile(int descriptor);

        /// <summary>Makes a file that this user alone can open, or on Windows a named mapping. Its name.</summary>
        private string Map()
        {
            string name = "ue_rl_" + Process.GetCurrentProcess().Id + "_";
            if (Path.DirectorySeparatorChar == '\\')
            {
                name += Hex(Random()).Substring(0, 8).ToLowerInvariant();
                _file = MemoryMappedFile.CreateNew("Local\\" + name, _size); // of this user's session
                return name;
            }
            bool memory = Directory.Exists("/dev/shm"); // Linux; elsewhere the path of an ordinary file will do
            string template = Path.Combine(memory ? "/dev/shm" : Path.GetTempPath(), name) + "XXXXXX\0";
            byte[] path = Encoding.UTF8.GetBytes(template);
            int descriptor = MakeFile(path);
            if (descriptor < 0) throw new IOException("no file in /dev/shm: " + Marshal.GetLastWin32Error());
            _path = Encoding.UTF8.GetString(path, 0, path.Length - 1);
            CloseFile(descriptor); // mono takes no descriptors; what counts is that the file is this user's alone
            var stream = new FileStream(_path, FileMode.Open, FileAccess.ReadWrite);
            try
            {
                // written, not only made long: on a full /dev/shm the first write to a page would kill the game
                var zeros = new byte[65536];
                for (long left = _size; left > 0; left -= zeros.Length)
                    stream.Write(zeros, 0, (int)Math.Min(left, zeros.Length));
                stream.Flush();
                _file = MemoryMappedFile.CreateFromFile(stream, null, _size, MemoryMappedFileAccess.ReadWrite,
                    HandleInheritability.None, false); // which closes the stream with itself
            }
            catch
            {
                stream.Dispose();
                throw;
            }
            return memory ? Path.GetFileName(_path) : _path;
        }

        /// <summary>Nobody else can find it any more; who has mapped it keeps it.</summary>
        internal void Unlink()
        {
            string path = _path;
            _path = null;
            try
            {
                if (path != null) File.Delete(path);
            }
            catch (IOException)
            {
                // somebody has deleted the folder: then the name is gone, too
            }
        }

        public void Dispose()
        {
            Unlink();
            if (_view != null) _view.Dispose();
            if (_file != null) _file.Dispose();
            _view = null;
            _file = null;
        }

        // -- words: a full barrier before each write that publishes, and behind each read that acquires

        private void Put(int at, int value)
        {
            Thread.MemoryBarrier();
            Marshal.WriteInt32(_base, at, value);
        }

        private void Put(int at, long value)
        {
            Thread.MemoryBarrier();
            Marshal.WriteInt64(_base, at, value);
        }

        private int Word(int at)
        {
            int value = Marshal.ReadInt32(_base, at);
            Thread.MemoryBarrier();
            return value;
        }

        /// <summary>The trainer's counter; what it wrote before it counted can be read afterwards.</summary>
        internal long Asked()
        {
            long value = Marshal.ReadInt64(_base, ActionSeq);
            Thread.MemoryBarrier();
            return value;
        }

        internal void Beat()
        {
            Marshal.WriteInt64(_base, Heartbeat, ++_beats);
        }

        /// <summary>Says whether this side blocks on the socket; look at Asked() once more behind it.</summary>
        internal void Sleeps(bool sleeps)
        {
            Put(EngineFlag, sleeps ? 2 : 0);
            Thread.MemoryBarrier();
            Beat();
        }

        /// <summary>Behind a counter that was written: does the trainer want a byte on the socket?</summary>
        internal bool PeerSleeps()
        {
            Thread.MemoryBarrier();
            return Word(ClientFlag) >= 2;
        }

        // -- requests and answers

        /// <summary>Copies the request: the trainer could change it while it is read.</summary>
        internal void Take()
        {
            Marshal.Copy(_base + _ask, Ask, 0, Ask.Length);
            Marshal.Copy(_base + _act, Actions, 0, Actions.Length);
        }

        internal long Seed(int row)
        {
            return Marshal.ReadInt64(_base, _seeds + 8 * row);
        }

        /// <summary>Copies these rows of the answer into the segment.</summary>
        internal void Copy(int first, int count)
        {
            int obs = _rows.ObsSize, masks = _rows.MaskSize;
            Marshal.Copy(Observations, first * obs, _base + _obs + 4 * first * obs, count * obs);
            Marshal.Copy(Rewards, first, _base + _rewards + 4 * first, count);
            Marshal.Copy(Dones, first, _base + _dones + first, count);
            Marshal.Copy(Truncateds, first, _base + _truncateds + first, count);
            if (masks > 0) Marshal.Copy(Masks, first * masks, _base + _masks + first * masks, count * masks);
            if (_present > 0) Marshal.Copy(Present, first, _base + _present + first, count);
        }

        internal void Publish()
        {
            Marshal.WriteInt64(_base, AnsweredSeq, Seen);
            Put(FrameSeq, ++_frames); // only this side counts it
        }

        /// <summary>Which envs have been answered so far, for a trainer whose deadline passes.</summary>
        internal void PublishPart(UeRlCodec codec)
        {
            Marshal.WriteInt64(_base, AnsweredSeq, Seen);
            for (int row = 0; row < _part.Length; row++)
                _part[row] = (byte)(codec.Asks[row / _rows.AgentsPerEnv] == UeRlCodec.Ask.Answered ? 1 : 0);
            Marshal.Copy(_part, 0, _base + _answered, _part.Length);
        }

        /// <summary>Ends the session. Why: for the trainer; null: it has gone by itself.</summary>
        internal void Close(string why)
        {
            if (why != null)
            {
                byte[] text = Encoding.UTF8.GetBytes(why.Replace('\0', ' '));
                int length = Math.Min(text.Length, MostReason);
                while (length < text.Length && (text[length] & 0xC0) == 0x80) length--; // between two characters
                Put(ReasonPid, 0);
                Thread.MemoryBarrier();
                Marshal.Copy(text, 0, _base + Reason, length);
                Marshal.WriteByte(_base, Reason + length, 0);
                Put(ReasonPid, Word(ClientPid));
            }
            Put(ServerState, 2);
            Put(ClientSince, 0L);
            Put(ClientState, 0);
            Put(ClientPid, 0);
        }
    }
}
