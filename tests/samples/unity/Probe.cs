// What the tests run in mono: engines of each kind, and the codec on lines from standard input.
//
//     probe.exe serve sink|plain|agents|behaviour PORT ENVS [SILENCE STARTING]  one line "listening .." first
//     -demo behind sink, agents or idle (which has no heuristic): FEATURES=DEMO
//     probe.exe play sink|plain|agents|behaviour ROUNDS ENVS  ones, and what each agent sees
//     probe.exe codec         each line: COMMAND TAB CONFIG TAB TEXT, answered by one line
//     probe.exe floats FILE   float32 in, their texts out, one a line
//     probe.exe parse FILE    texts in, the bits of double and float32 out
//     probe.exe alloc SHARED|PER_ENV|MEMORY STEPS ENVS

using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.IO.MemoryMappedFiles;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using UeRl.Samples;

namespace UeRl.Tests
{
    public static class Probe
    {
        public static int Main(string[] words)
        {
            string culture = Environment.GetEnvironmentVariable("PROBE_CULTURE");
            if (culture == "comma")
            {
                var own = (CultureInfo)CultureInfo.InvariantCulture.Clone(); // as in Germany, and worse
                own.NumberFormat.NumberDecimalSeparator = ",";
                own.NumberFormat.NumberGroupSeparator = ".";
                own.NumberFormat.NegativeSign = "~";
                Thread.CurrentThread.CurrentCulture = Thread.CurrentThread.CurrentUICulture = own;
            }
            Console.SetOut(new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false))
                { AutoFlush = words[0] == "serve" });
            switch (words[0])
            {
                case "serve":
                    if (words.Length > 5 && words[4][0] != '-')
                    {
                        UeRlBridge.Silence = double.Parse(words[4], CultureInfo.InvariantCulture);
                        UeRlBridge.Starting = double.Parse(words[5], CultureInfo.InvariantCulture);
                    }
                    Serve(words[1], int.Parse(words[2]), int.Parse(words[3]));
                    break;
                case "play": Play(words[1], int.Parse(words[2]), int.Parse(words[3])); break;
                case "codec": Codec(); break;
                case "floats": Floats(File.ReadAllBytes(words[1])); break;
                case "parse": Parse(File.ReadAllLines(words[1])); break;
                case "doubles": Doubles(File.ReadAllBytes(words[1])); break;
                case "alloc": Allocations(words[1], int.Parse(words[2]), int.Parse(words[3])); break;
                default: return 2;
            }
            Console.Out.Flush();
            return 0;
        }

        private static void Serve(string kind, int port, int numEnvs)
        {
            if (kind == "behaviour")
            {
                Loop(port, numEnvs);
                return;
            }
            using (UeRlBridge bridge = Made(kind, numEnvs))
            {
                bridge.Start(port);
                Console.WriteLine("listening " + bridge.Port);
                while (true)
                {
                    if (!bridge.IsStepping) bridge.Wait(50);
                    bridge.Tick();
                }
            }
        }

        private static UeRlBridge Made(string kind, int numEnvs)
        {
            string game = kind.Replace("-demo", "");
            UeRlSpec spec = game == "agents" ? Agents.Spec(numEnvs) : KitchenSink.Spec(numEnvs, game == "plain");
            bool demo = kind != game;
            if (demo) spec.Features.AddRange(spec.Features.Contains("INFO") ? new[] { "DEMO" } : new[] { "DEMO", "INFO" });
            var bridge = new UeRlBridge(spec, game == "agents" ? (UeRlGame)new Agents(numEnvs)
                : new KitchenSink(numEnvs, game == "plain"));
            if (!demo || game == "idle") return bridge;
            bridge.Heuristic = (rows, row) =>
            {
                for (int i = 0; i < rows.ActSize; i++) // in the fifth step it fails
                    rows.Actions[row * rows.ActSize + i] = rows.Observations[row * rows.ObsSize] == 4 ? 7 : 1;
            };
            return bridge;
        }

        private static void Play(string kind, int rounds, int numEnvs)
        {
            if (kind == "behaviour")
            {
                var one = new ReachBehaviour(numEnvs);
                one.Begin(0);
                for (; rounds > 0; rounds--)
                {
                    one.Fixed();
                    one.Physics();
                    one.Frame();
                    one.Draw();
                    Console.WriteLine(UnityEngine.GUI.Shown);
                }
                return;
            }
            using (UeRlBridge bridge = Made(kind, numEnvs))
            {
                bridge.Heuristic = (rows, row) =>
                {
                    for (int i = 0; i < rows.ActSize; i++)
                        rows.Actions[row * rows.ActSize + i] = rounds == 1 && kind == "plain" ? 0.5f : 1;
                };
                bridge.Show = (row, text) => Console.WriteLine(text);
                bridge.Start();
                try
                {
                    for (; rounds > 0; rounds--) bridge.Tick();
                }
                catch (InvalidOperationException error)
                {
                    Console.WriteLine(error.Message);
                }
            }
        }

        /// <summary>Unity's loop around UeRlBehaviour.</summary>
        private static void Loop(int port, int numEnvs)
        {
            var one = new ReachBehaviour(numEnvs);
            one.Begin(port);
            Console.WriteLine("listening " + one.Bridge.Port);
            while (true)
            {
                if (UnityEngine.Time.timeScale > 0)
                {
                    one.Fixed();
                    if (UnityEngine.Time.timeScale > 0) one.Physics();
                }
                one.Frame();
            }
        }

        private sealed class ReachBehaviour : UeRlBehaviour
        {
            private readonly int _envs;
            private ReachInTicks _game;

            internal ReachBehaviour(int envs) { _envs = envs; }

            protected override UeRlSpec Describe(int numEnvs) { return ReachGame.Spec(_envs, "ANY"); }

            protected override UeRlGame CreateGame(int numEnvs, long seed) { return _game = new ReachInTicks(_envs,
                Math.Max(seed, 0)); }

            internal void Begin(int port) { Awake(); }

            internal void Fixed() { FixedUpdate(); }

            internal void Frame() { Update(); }

            internal void Draw() { OnGUI(); }

            protected override void Heuristic(UeRlRows rows, int row)
            {
                int seen = 6 * row;
                for (int i = 0; i < 2; i++)
                    rows.Actions[2 * row + i] = Math.Max(-1, Math.Min(1,
                        4 * rows.Observations[seen + 4 + i] - 2 * rows.Observations[seen + 2 + i]));
            }

            internal void Physics() { _game.Simulate(); }
        }

        /// <summary>Does not step when the action comes but in the physics tick behind it, as a game does.</summary>
        private sealed class ReachInTicks : UeRlGame
        {
            private readonly ReachGame _inner;
            private readonly bool[] _due, _done;

            internal ReachInTicks(int envs, long seed)
            {
                _inner = new ReachGame(envs, seed);
                _due = new bool[envs];
                _done = new bool[envs];
            }

            public override void OnReset(int env, long seed, string options)
            {
                _inner.Rows = Rows;
                _inner.OnReset(env, seed, options);
                _due[env] = _done[env] = false;
            }

            public override void OnAction(int env) { _due[env] = true; }

            internal void Simulate()
            {
                for (int env = 0; env < _due.Length; env++)
                {
                    if (!_due[env]) continue;
                    _inner.OnAction(env);
                    _due[env] = false;
                    _done[env] = true;
                }
            }

            public override bool OnResult(int env)
            {
                if (!_done[env]) throw new InvalidOperationException("an answer without a physics tick");
                _done[env] = false;
                return _inner.OnResult(env);
            }
        }

        // -- lines in memory

        private static void Codec()
        {
            var input = new StreamReader(Console.OpenStandardInput(), new UTF8Encoding(false));
            for (string line = input.ReadLine(); line != null; line = input.ReadLine())
            {
                string[] parts = line.Split('\t');
                string answer;
                try
                {
                    answer = Answer(parts[0], parts[1], parts[2]);
                }
                catch (Exception error)
                {
                    answer = "reject " + error.GetType().Name + " " + error.Message;
                }
                Console.WriteLine(answer.Replace("\n", " "));
            }
        }

        private static string Answer(string command, string config, string text)
        {
            UeRlSpec spec = Spec(config);
            if (command == "handshake")
            {
                new UeRlCodec(spec, new Recorder());
                return spec.Handshake();
            }
            var recorder = new Recorder();
            var codec = new UeRlCodec(spec, recorder);
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            if (command == "request")
            {
                for (int row = 0; row < codec.Rows.NumRows; row++) codec.Rows.Here[row] = text.IndexOf("AGENT="
                    + row % codec.Rows.AgentsPerEnv) >= 0;
                codec.Take(bytes, 0, bytes.Length, -1);
                return recorder.Asks(codec);
            }
            if (command == "call") return UeRlCodec.IsCall(bytes, 0, bytes.Length) ? codec.Call(bytes, 0,
                bytes.Length) : "no call";
            // reply: its number, and rows of env agent reward terminated truncated mask info obs.., in bits
            string[] pieces = text.Split('|');
            for (int env = 0; env < codec.Seqs.Length; env++) codec.Seqs[env] = long.Parse(pieces[0]);
            for (int piece = 1; piece < pieces.Length; piece++)
            {
                string one = pieces[piece];
                string[] f = one.Split(' ');
                int env = int.Parse(f[0]), row = env * codec.Rows.AgentsPerEnv + int.Parse(f[1]);
                if (codec.Asks[env] == UeRlCodec.Ask.Nothing) codec.Open++;
                if (codec.Asks[env] == UeRlCodec.Ask.Nothing) codec.Ready++;
                codec.Asks[env] = UeRlCodec.Ask.Answered;
                codec.Rows.Asked[row] = true;
                codec.Rows.Rewards[row] = Single(f[2]);
                codec.Rows.Terminated[row] = f[3] == "1" && f[4] == "0";
                codec.Rows.Truncated[row] = f[4] == "1";
                for (int i = 0; i < codec.Rows.MaskSize; i++)
                    codec.Rows.Masks[row * codec.Rows.MaskSize + i] = (byte)(i < f[5].Length && f[5][i] == '0' ? 0 : 1);
                codec.Rows.Infos[row] = f[6] == "-" ? null : Encoding.UTF8.GetString(Convert.FromBase64String(f[6]));
                for (int i = 7; i < f.Length; i++) codec.Rows.Observations[row * spec.ObsSize + i - 7] = Single(f[i]);
            }
            for (int env = 0; env < spec.NumEnvs; env++)
                if (codec.Asks[env] == UeRlCodec.Ask.Answered) codec.Encode(env);
            codec.EndLine();
            return Encoding.ASCII.GetString(codec.Out, 0, codec.OutLength - 1);
        }

        private static float Single(string bits)
        {
            return BitConverter.ToSingle(BitConverter.GetBytes(uint.Parse(bits)), 0);
        }

        private static UeRlSpec Spec(string config)
        {
            var spec = new UeRlSpec { Channel = "ANY" };
            var seen = new HashSet<string>();
            var behind = new List<string[]>();
            if (!config.StartsWith("CONFIG:", StringComparison.OrdinalIgnoreCase))
                throw new FormatException("no CONFIG");
            foreach (string field in config.Substring(7).Split(';'))
            {
                string[] pair = field.Split(new[] { '=' }, 2);
                if (pair.Length < 2) continue;
                string key = pair[0].Trim(), value = pair[1].Trim();
                if (!seen.Add(key)) throw new FormatException("a key twice");
                if (key.IndexOf('.') >= 0) behind.Add(new[] { key.Substring(0, key.IndexOf('.')),
                    key.Substring(key.IndexOf('.') + 1), value });
                else Set(spec, key.ToUpperInvariant(), value);
            }
            foreach (string[] one in behind)
            {
                UeRlGroup group = spec.Groups.Find(other => other.Name == one[1]);
                if (one[0] == "OBS") group.ObsSize = int.Parse(one[2]);
                if (one[0] == "ACT") group.ActSize = int.Parse(one[2]);
                if (one[0] == "OBS_SPACE") group.ObsSpace = one[2];
                if (one[0] == "ACT_SPACE") group.ActSpace = one[2];
            }
            if (!spec.Single && !seen.Contains("ENV_COUNT") && !seen.Contains("env_count"))
                throw new FormatException("no ENV_COUNT");
            return spec;
        }

        private static void Set(UeRlSpec spec, string key, string value)
        {
            if (key == "OBS") spec.ObsSize = int.Parse(value);
            if (key == "ACT") spec.ActSize = int.Parse(value);
            if (key == "ENV_TYPE") spec.Single = value.ToUpperInvariant() == "SINGLE";
            if (key == "ENV_COUNT") spec.NumEnvs = int.Parse(value);
            if (key == "CHANNEL") spec.Channel = value;
            if (key == "ACT_SPACE") spec.ActSpace = value;
            if (key == "OBS_SPACE") spec.ObsSpace = value;
            if (key == "FEATURES") spec.Features.AddRange(value.Split(','));
            if (key == "OBS_NAMES") spec.ObsNames = Array.ConvertAll(value.Split(','), Uri.UnescapeDataString);
            if (key == "ACT_NAMES") spec.ActNames = Array.ConvertAll(value.Split(','), Uri.UnescapeDataString);
            if (key == "VERSION" && value != "1") throw new FormatException("another version");
            if (key == "IMAGE") throw new NotSupportedException("images need shared memory");
            foreach (string part in value.Split(','))
            {
                string[] words = part.Split(':');
                if (key == "AGENTS") spec.Groups.Add(new UeRlGroup { Name = Uri.UnescapeDataString(words[0]),
                    Count = int.Parse(words[1]) });
                if (key != "PARAMS") continue;
                double[] n = Array.ConvertAll(new List<string>(words).GetRange(1, words.Length - 1).ToArray(),
                                              text => double.Parse(text, CultureInfo.InvariantCulture));
                string name = Uri.UnescapeDataString(words[0]);
                spec.Parameters.Add(n.Length == 1 ? new UeRlParameter(name, n[0]) : new UeRlParameter(name, n[0],
                    n[1], n[2]));
            }
        }

        /// <summary>Notes what it is told, as JSON.</summary>
        private sealed class Recorder : UeRlGame
        {
            private readonly StringBuilder _said = new StringBuilder();
            private string _settings = "";

            internal string Asks(UeRlCodec codec)
            {
                codec.Dispatch();
                return "[" + _said + "]";
            }

            private void Say(string text)
            {
                _said.Append(_said.Length > 0 ? ", " : "").Append(text);
            }

            public override void OnSetParameter(string name, double value, int env)
            {
                base.OnSetParameter(name, value, env);
                _settings += (_settings.Length > 0 ? ", " : "") + "\"" + name + "\": " + value.ToString("R",
                    CultureInfo.InvariantCulture);
            }

            public override void OnReset(int env, long seed, string options)
            {
                string text = "{\"env\": " + env + ", \"reset\": true";
                if (seed >= 0) text += ", \"seed\": " + seed;
                if (options != null) text += ", \"options\": " + options;
                if (_settings.Length > 0) text += ", \"set\": {" + _settings + "}";
                _settings = "";
                Say(text + "}");
            }

            public override void OnAction(int env)
            {
                for (int row = env * Rows.AgentsPerEnv; row < (env + 1) * Rows.AgentsPerEnv; row++)
                {
                    if (!Rows.Asked[row]) continue;
                    var numbers = new List<string>();
                    for (int i = 0; i < Rows.ActSize; i++)
                        numbers.Add(((double)Rows.Actions[row * Rows.ActSize + i]).ToString("R",
                            CultureInfo.InvariantCulture));
                    string agent = Rows.AgentsPerEnv > 1 ? ", \"agent\": " + row % Rows.AgentsPerEnv : "";
                    Say("{\"env\": " + env + agent + ", \"action\": [" + string.Join(", ", numbers) + "]}");
                }
            }

            public override bool OnResult(int env) { return true; }

            public override void OnTimeScale(double scale) { }

            public override void OnPause(bool paused) { throw new InvalidOperationException("a match is on"); }

            public override UeRlPicture OnRender(int env)
            {
                return new UeRlPicture { Height = 2, Width = 1, Channels = 3, Pixels = new byte[] { 0, 1, 2, 3, 4,
                    255 } };
            }

            public override float OnGoalReward(double[] achieved, double[] desired) { return achieved[0] < 5 ? -1 : 0; }
        }

        // -- numbers

        private static void Floats(byte[] bits)
        {
            var into = new byte[64];
            var text = new StringBuilder();
            for (int i = 0; i < bits.Length; i += 4)
                text.Append(Encoding.ASCII.GetString(into, 0, UeRlNumbers.Write(BitConverter.ToSingle(bits, i), into,
                    0))).Append('\n');
            Console.Write(text);
        }

        private static void Doubles(byte[] bits)
        {
            for (int i = 0; i < bits.Length; i += 8) Console.WriteLine(UeRlText.Double(BitConverter.ToDouble(bits, i)));
        }

        private static void Parse(string[] lines)
        {
            var numbers = new UeRlNumbers();
            foreach (string line in lines)
            {
                double value;
                byte[] bytes = Encoding.ASCII.GetBytes(line);
                if (!numbers.Parse(bytes, 0, bytes.Length, out value)) Console.WriteLine("none");
                else Console.WriteLine((ulong)BitConverter.DoubleToInt64Bits(value) + " "
                    + BitConverter.ToUInt32(BitConverter.GetBytes((float)value), 0));
            }
        }

        // -- allocations

        /// <summary>Steps a reach engine from a trainer in the same thread that allocates nothing itself.</summary>
        private static void Allocations(string wiring, int steps, int numEnvs)
        {
            using (var bridge = new UeRlBridge(ReachGame.Spec(numEnvs, "ANY"), new ReachGame(numEnvs, 0)))
            {
                bridge.Log = line => { };
                bridge.Start(0);
                var sockets = new List<Socket> { Dial(bridge.Port) };
                var buffer = new byte[1 << 20];
                for (int i = 0; i < 20; i++) bridge.Tick();
                string handshake = Encoding.ASCII.GetString(buffer, 0, ReadLines(sockets[0], buffer, bridge));
                bool shared = wiring == "SHARED";
                if (wiring == "MEMORY")
                {
                    AllocationsInMemory(handshake, sockets[0], buffer, bridge, steps);
                    return;
                }
                for (int env = 0; env < numEnvs && !shared; env++) sockets.Add(Dial(bridge.Port));
                byte[][] resets = Lines("ACT=RESET", numEnvs, shared), actions = Lines("ACT=0.25,-1.5e-3", numEnvs,
                    shared);
                Exchange(sockets, resets, buffer, bridge);
                Measure(steps, i => Exchange(sockets, i % 50 == 49 ? resets : actions, buffer, bridge));
            }
        }

        private static void Measure(int steps, Action<int> step)
        {
            for (int i = 0; i < 200; i++) step(i);
            GC.Collect();
            int collections = GC.CollectionCount(0);
            long before = GC.GetTotalMemory(false);
            for (int i = 0; i < steps; i++) step(i);
            int collected = GC.CollectionCount(0) - collections;
            long used = GC.GetTotalMemory(false) - before;
            // does the meter see small objects? The bytes of those that live, and of the ones collected
            before = GC.GetTotalMemory(false);
            var kept = new byte[20000][];
            for (int i = 0; i < kept.Length; i++) kept[i] = new byte[64];
            Console.WriteLine(collected + " " + used + " " + (GC.GetTotalMemory(false) - before));
            GC.KeepAlive(kept);
        }

        /// <summary>The same with a trainer that has mapped the segment, and sleeps in each step, so that bells ring.</summary>
        private static void AllocationsInMemory(string handshake, Socket socket, byte[] buffer, UeRlBridge bridge,
            int steps)
        {
            string name = handshake.Substring(handshake.IndexOf("SHM=") + 4).Split(':')[0];
            using (var file = MemoryMappedFile.CreateFromFile("/dev/shm/" + name))
            using (var view = file.CreateViewAccessor())
            {
                string proof = "";
                for (int i = 0; i < 16; i++) proof += view.ReadByte(240 + i).ToString("X2");
                socket.Send(Encoding.ASCII.GetBytes("SHM=ACCEPT;PROOF=" + proof + "\n"));
                ReadLines(socket, buffer, bridge); // SHM=READY
                long ask = view.ReadInt64(296);
                int envs = view.ReadInt32(20);
                SocketError error;
                Measure(steps, step =>
                {
                    for (int env = 0; env < envs; env++) view.Write(ask + env, (byte)(step % 50 == 0 ? 2 : 1));
                    view.Write(268, 2);
                    view.Write(40, view.ReadInt64(40) + 1);
                    bridge.Wait(1);
                    bridge.Tick();
                    bridge.Answer();
                    if (view.ReadInt64(32) != view.ReadInt64(40)) throw new InvalidOperationException("no answer");
                    if (socket.Receive(buffer, 0, 64, SocketFlags.None, out error) != 1)
                        throw new InvalidOperationException("not one doorbell");
                });
            }
        }

        private static Socket Dial(int port)
        {
            var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
            socket.Connect(new IPEndPoint(IPAddress.Loopback, port));
            return socket;
        }

        private static byte[][] Lines(string text, int numEnvs, bool shared)
        {
            var rows = new List<string>();
            for (int env = 0; env < numEnvs; env++) rows.Add(text + ";ENV=" + env);
            if (shared) rows = new List<string> { string.Join("||", rows) };
            return rows.ConvertAll(row => Encoding.ASCII.GetBytes(row + "\n")).ToArray();
        }

        private static void Exchange(List<Socket> sockets, byte[][] lines, byte[] buffer, UeRlBridge bridge)
        {
            int first = sockets.Count > 1 ? 1 : 0;
            for (int i = 0; i < lines.Length; i++) sockets[first + i].Send(lines[i]);
            for (int i = 0; i < lines.Length; i++) ReadLines(sockets[first + i], buffer, bridge);
        }

        private static int ReadLines(Socket socket, byte[] buffer, UeRlBridge bridge)
        {
            SocketError error;
            while (!socket.Poll(0, SelectMode.SelectRead))
            {
                if (!bridge.IsStepping) bridge.Wait(1);
                bridge.Tick();
            }
            int count = 0;
            do count += socket.Receive(buffer, count, buffer.Length - count, SocketFlags.None, out error);
            while (buffer[count - 1] != '\n');
            return count;
        }
    }
}
