// The engine's side of the ue_rl protocol, version 1.1 (docs/protocol.md), in one file: netstandard 2.1, C# 8, no
// dependency. Copy it into a project, derive a class from UeRlGame, and call Tick() once a frame (docs/unity.md).
//
// Nothing is allocated per step once a session runs; resets with OPTIONS or SET, calls, infos and errors do allocate.
// No text depends on the culture of the thread. Shared memory is a second file, UeRlSharedMemory.cs, which need not be
// there. In neither: IMAGE and RLBASE.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Security.Cryptography;
using System.Runtime.InteropServices;
using System.Text;

namespace UeRl
{
    /// <summary>The trainer, or the game, did what the protocol forbids. Ends the session with an ERROR line.</summary>
    public sealed class UeRlProtocolException : Exception
    {
        public UeRlProtocolException(string message) : base(message) { }
    }

    /// <summary>A parameter of the game that a trainer may set: docs/protocol.md, section 8.</summary>
    public sealed class UeRlParameter
    {
        public readonly string Name;
        public readonly double Start, Low, High;

        public UeRlParameter(string name, double start, double low = double.NegativeInfinity,
                             double high = double.PositiveInfinity)
        {
            Name = name;
            Start = start;
            Low = low;
            High = high;
        }
    }

    /// <summary>A group of agents of one kind; 0 and null: as the handshake says without a name (section 7).</summary>
    public sealed class UeRlGroup
    {
        public string Name;
        public int Count = 1, ObsSize, ActSize;
        public string ObsSpace, ActSpace;
        public string[] ObsNames, ActNames;
    }

    /// <summary>What the handshake says. Spaces are its own text: "BOX(-1:1)", "DISCRETE(3)", "DICT(..)".</summary>
    public sealed class UeRlSpec
    {
        public int ObsSize, ActSize, NumEnvs = 1;
        public bool Single;
        public string Channel = "ANY";
        public string ObsSpace, ActSpace;
        public string[] ObsNames, ActNames;
        public readonly List<string> Features = new List<string>();
        public readonly List<UeRlParameter> Parameters = new List<UeRlParameter>();
        public readonly List<UeRlGroup> Groups = new List<UeRlGroup>();

        internal bool Has(string feature)
        {
            return Features.Contains(feature);
        }

        internal int AgentsPerEnv
        {
            get
            {
                if (Groups.Count == 0) return 1;
                long sum = 0;
                foreach (UeRlGroup group in Groups) sum += group.Count;
                return (int)Math.Min(sum, int.MaxValue);
            }
        }

        /// <summary>The handshake's line, without its line feed. ArgumentException: what is wrong with the spec.</summary>
        public string Handshake()
        {
            Check();
            var text = new StringBuilder("CONFIG:");
            text.Append("OBS=").Append(UeRlText.Integer(ObsSize)).Append(";ACT=").Append(UeRlText.Integer(ActSize));
            text.Append(";ENV_TYPE=").Append(Single ? "SINGLE" : "MULTI");
            if (!Single) text.Append(";ENV_COUNT=").Append(UeRlText.Integer(NumEnvs));
            text.Append(";VERSION=1;CHANNEL=").Append(Channel);
            Kinds(text, "", ObsSpace, ActSpace, ObsNames, ActNames);
            if (Features.Count > 0) text.Append(";FEATURES=").Append(string.Join(",", Features));
            for (int i = 0; i < Parameters.Count; i++)
            {
                UeRlParameter one = Parameters[i];
                text.Append(i == 0 ? ";PARAMS=" : ",").Append(UeRlText.Percent(one.Name, true)).Append(':');
                text.Append(UeRlText.Double(one.Start));
                if (double.IsInfinity(one.Low) && double.IsInfinity(one.High)) continue;
                text.Append(':').Append(UeRlText.Double(one.Low)).Append(':').Append(UeRlText.Double(one.High));
            }
            for (int i = 0; i < Groups.Count; i++)
                text.Append(i == 0 ? ";AGENTS=" : ",").Append(UeRlText.Percent(Groups[i].Name, true)).Append(':')
                    .Append(UeRlText.Integer(Groups[i].Count));
            foreach (UeRlGroup group in Groups)
            {
                string tail = "." + UeRlText.Percent(group.Name, true);
                if (group.ObsSize > 0)
                    text.Append(";OBS").Append(tail).Append('=').Append(UeRlText.Integer(group.ObsSize));
                if (group.ActSize > 0)
                    text.Append(";ACT").Append(tail).Append('=').Append(UeRlText.Integer(group.ActSize));
                Kinds(text, tail, group.ObsSpace, group.ActSpace, group.ObsNames, group.ActNames);
            }
            if (text.Length >= 65536) throw new ArgumentException("the handshake is longer than 64 KiB");
            return text.ToString();
        }

        private static void Kinds(StringBuilder text, string tail, string obs, string act, string[] obsNames,
            string[] actNames)
        {
            if (act != null) text.Append(";ACT_SPACE").Append(tail).Append('=').Append(act);
            if (obs != null) text.Append(";OBS_SPACE").Append(tail).Append('=').Append(obs);
            if (obsNames != null) text.Append(";OBS_NAMES").Append(tail).Append('=').Append(UeRlText.Names(obsNames));
            if (actNames != null) text.Append(";ACT_NAMES").Append(tail).Append('=').Append(UeRlText.Names(actNames));
        }

        internal void Check()
        {
            Need(NumEnvs >= 1 && NumEnvs <= 65536, "NumEnvs must be 1 to 65536");
            Need(!Single || NumEnvs == 1, "a Single engine has one env");
            Need(ObsSize >= 1 && ActSize >= 1, "ObsSize and ActSize must be 1 or more");
            Need((long)NumEnvs * Math.Max(ObsSize, ActSize) <= 16777216, "all envs have more than 16777216 numbers");
            Need(Channel == "ANY" || Channel == "SHARED" || Channel == "PER_ENV",
                "Channel must be ANY, SHARED or PER_ENV");
            Need(!Has("DEMO") || Has("INFO"), "DEMO needs INFO");
            Need(ObsNames == null || ObsNames.Length == ObsSize, "ObsNames must have ObsSize names");
            Need(ActNames == null || ActNames.Length == ActSize, "ActNames must have ActSize names");
            foreach (string feature in Features)
                Need(feature.Length > 0 && feature.IndexOfAny(new[] { ',', ';', '|', '=', ' ' }) < 0,
                    "a feature is no name");
            var seen = new HashSet<string>();
            foreach (UeRlParameter one in Parameters)
            {
                Need(!string.IsNullOrEmpty(one.Name) && seen.Add(one.Name),
                    "a parameter has no name, or that of another");
                Need(!double.IsNaN(one.Start) && !double.IsInfinity(one.Start), "a parameter's value is not finite: "
                    + one.Name);
                Need(one.Start >= one.Low && one.Start <= one.High, "a parameter is outside of its range: " + one.Name);
                // a range is written with both ends, and both are numbers
                Need(double.IsInfinity(one.Low) == double.IsInfinity(one.High), "a range needs both ends: " + one.Name);
            }
            seen.Clear();
            int mostObs = 0, mostAct = 0;
            foreach (UeRlGroup group in Groups)
            {
                Need(!string.IsNullOrEmpty(group.Name) && seen.Add(group.Name),
                    "a group has no name, or that of another");
                Need(group.Count >= 1, "a group has no agents: " + group.Name);
                Need(group.ObsSize >= 0 && group.ObsSize <= ObsSize && group.ActSize >= 0 && group.ActSize <= ActSize,
                     "ObsSize and ActSize must be those of the group with the most numbers");
                mostObs = Math.Max(mostObs, group.ObsSize > 0 ? group.ObsSize : ObsSize);
                mostAct = Math.Max(mostAct, group.ActSize > 0 ? group.ActSize : ActSize);
            }
            if (Groups.Count == 0) return;
            Need(mostObs == ObsSize && mostAct == ActSize, "no group has ObsSize and ActSize numbers");
            Need(!Single && Channel != "PER_ENV", "agents need MULTI and the shared channel");
            Need(AgentsPerEnv <= 4096 && (long)AgentsPerEnv * NumEnvs <= 65536, "too many agents");
            Need((long)AgentsPerEnv * NumEnvs * Math.Max(ObsSize, ActSize) <= 16777216,
                "all agents have too many numbers");
        }

        private static void Need(bool right, string otherwise)
        {
            if (!right) throw new ArgumentException(otherwise);
        }
    }

    /// <summary>
    /// The arrays between the game and the bridge. Row r is env r where there are no agents; else env * AgentsPerEnv +
    /// agent. A row has ObsSize and ActSize numbers in the arrays, also where its group has fewer.
    /// </summary>
    public sealed class UeRlRows
    {
        public readonly int NumEnvs, AgentsPerEnv, NumRows, ObsSize, ActSize, MaskSize;
        public readonly float[] Actions, Observations, Rewards;
        public readonly bool[] Terminated, Truncated;
        /// <summary>1: legal. Every choice is, before each OnReset and OnAction; sent where FEATURES has MASK.</summary>
        public readonly byte[] Masks;
        /// <summary>A JSON object, or null; forgotten once it was sent.</summary>
        public readonly string[] Infos;
        /// <summary>The agent was asked: its action is in Actions.</summary>
        public readonly bool[] Asked;
        /// <summary>
        /// Agents that come. All are set before OnReset: clear those that are not there at the episode's start. In
        /// OnResult set the one of an agent that has just come.
        /// </summary>
        public readonly bool[] Comes;
        /// <summary>Agents that are there and whose episode is not over, as the trainer knows it.</summary>
        public readonly bool[] Here;

        internal UeRlRows(UeRlSpec spec, int maskSize)
        {
            NumEnvs = spec.NumEnvs;
            AgentsPerEnv = spec.AgentsPerEnv;
            NumRows = NumEnvs * AgentsPerEnv;
            ObsSize = spec.ObsSize;
            ActSize = spec.ActSize;
            MaskSize = maskSize;
            Actions = new float[NumRows * ActSize];
            Observations = new float[NumRows * ObsSize];
            Rewards = new float[NumRows];
            Terminated = new bool[NumRows];
            Truncated = new bool[NumRows];
            Masks = new byte[NumRows * maskSize];
            Infos = new string[NumRows];
            Asked = new bool[NumRows];
            Comes = new bool[NumRows];
            Here = new bool[NumRows];
        }
    }

    /// <summary>A picture of RENDER: uint8 rows of pixels, 1 to 4 channels.</summary>
    public sealed class UeRlPicture
    {
        public int Height, Width, Channels;
        public byte[] Pixels;
    }

    /// <summary>
    /// The game: derive from it and write into Rows. All methods are called from within Tick(), on its thread. An
    /// exception ends the session with an ERROR line, and the next trainer is served.
    /// </summary>
    public abstract class UeRlGame
    {
        /// <summary>Set before the first callback.</summary>
        public UeRlRows Rows { get; internal set; }
        private double[][] _ofEnvs;
        private List<UeRlParameter> _parameters;

        internal void Begin(UeRlSpec spec, UeRlRows rows)
        {
            Rows = rows;
            _parameters = spec.Parameters;
            _ofEnvs = new double[spec.Parameters.Count][];
            for (int i = 0; i < _ofEnvs.Length; i++)
            {
                _ofEnvs[i] = new double[spec.NumEnvs];
                for (int env = 0; env < spec.NumEnvs; env++) _ofEnvs[i][env] = spec.Parameters[i].Start;
            }
        }

        /// <summary>
        /// Begins an episode of the env and writes its first observation. Never begin one otherwise, not at the end of
        /// the one before either.
        /// </summary>
        /// <param name="seed">-1: none was given; go on with the env's own random numbers.</param>
        /// <param name="options">The text of a JSON object, or null.</param>
        public abstract void OnReset(int env, long seed, string options);

        /// <summary>An action has come for the env; it holds until OnResult says that it has ended.</summary>
        public abstract void OnAction(int env);

        /// <summary>
        /// After each simulated step: has the env's action ended? If so write Observations, Rewards, Terminated and
        /// Truncated (a time limit, and not a terminal state, ended the episode) of all its rows that were asked.
        /// </summary>
        public abstract bool OnResult(int env);

        /// <summary>A trainer sets a parameter (checked: it exists and is in its range). Env -1: of all.</summary>
        public virtual void OnSetParameter(string name, double value, int env)
        {
            double[] values = _ofEnvs[Index(name)];
            for (int i = env < 0 ? 0 : env; i < (env < 0 ? values.Length : env + 1); i++) values[i] = value;
        }

        /// <summary>The value now.</summary>
        public virtual double GetParameter(string name, int env)
        {
            return _ofEnvs[Index(name)][env];
        }

        /// <summary>FEATURES=TIME_SCALE: 1 is real time.</summary>
        public virtual void OnTimeScale(double scale) {
            throw new NotSupportedException("this game has no time scale"); }

        /// <summary>FEATURES=PAUSE. When a session ends it is called with false where it was true.</summary>
        public virtual void OnPause(bool paused) { throw new NotSupportedException("this game does not pause"); }

        /// <summary>FEATURES=RENDER.</summary>
        public virtual UeRlPicture OnRender(int env) { throw new NotSupportedException("this game has no pictures"); }

        /// <summary>FEATURES=GOAL_REWARD: the reward of a pair, without a step.</summary>
        public virtual float OnGoalReward(double[] achieved, double[] desired)
        {
            throw new NotSupportedException("this game computes no rewards of goals");
        }

        /// <summary>A trainer has come.</summary>
        public virtual void OnSessionBegin(string peer) { }

        /// <summary>It has gone, or was sent away: why.</summary>
        public virtual void OnSessionEnd(string why) { }

        private int Index(string name)
        {
            for (int i = 0; i < _parameters.Count; i++)
                if (_parameters[i].Name == name) return i;
            throw new ArgumentException("no such parameter: " + name);
        }
    }

    /// <summary>What an action space means for each number of a row.</summary>
    internal sealed class UeRlLayout
    {
        private static readonly string[] Types = { "FLOAT32", "FLOAT64", "UINT8", "INT8", "INT16", "UINT16", "INT32",
            "INT64" };
        internal readonly List<bool> IsChoice = new List<bool>();
        internal readonly List<long> Low = new List<long>(), High = new List<long>();
        internal bool HasChoices;
        internal int MaskSize;
        private readonly string _text;
        private readonly int _size;
        private int _at, _leaves;

        /// <summary>Reads a space of a row of `size` numbers. ArgumentException: what is wrong with it.</summary>
        internal UeRlLayout(string text, int size)
        {
            _text = text;
            _size = size;
            Space(0);
            if (_at != text.Length) throw Wrong("something stands behind it");
            if (IsChoice.Count != size) throw Wrong("it has " + IsChoice.Count + " numbers, the row has " + size);
            long flags = 0;
            for (int i = 0; i < size; i++) flags += IsChoice[i] ? High[i] - Low[i] + 1 : 0;
            if (flags > 67108864) throw Wrong("it has too many choices");
            MaskSize = (int)flags;
        }

        /// <summary>Is this number, where it is a choice, one of them?</summary>
        internal bool Fits(int i, double value)
        {
            return !HasChoices || !IsChoice[i] || (value == Math.Floor(value) && value >= Low[i] && value <= High[i]);
        }

        private Exception Wrong(string why)
        {
            return new ArgumentException("the space " + _text + " is wrong: " + why);
        }

        private char Next { get { return _at < _text.Length ? _text[_at] : '\0'; } }

        private void Expect(char one)
        {
            if (Next != one) throw Wrong("expected " + one + " at " + _at);
            _at++;
        }

        private string Until(string ends)
        {
            int start = _at;
            while (_at < _text.Length && ends.IndexOf(_text[_at]) < 0) _at++;
            if (start == _at) throw Wrong("something is missing at " + _at);
            return _text.Substring(start, _at - start);
        }

        private void Space(int depth)
        {
            if (depth > 8) throw Wrong("it is more than 8 deep");
            string kind = Until("(,)[]:").ToUpperInvariant();
            if (kind == "DICT" || kind == "TUPLE")
            {
                var names = new HashSet<string>();
                do
                {
                    _at++; // the bracket or the comma
                    if (kind == "DICT")
                    {
                        if (!names.Add(Until(":(),"))) throw Wrong("a part has the name of another");
                        Expect(':');
                    }
                    Space(depth + 1);
                } while (Next == ',');
                Expect(')');
                return;
            }
            if (++_leaves > 1024) throw Wrong("it has more than 1024 leaves");
            Expect('(');
            if (kind == "BOX") Box(depth);
            else if (kind == "DISCRETE") Discrete();
            else if (kind == "MULTI_DISCRETE") MultiDiscrete();
            else if (kind == "MULTI_BINARY") MultiBinary();
            else throw Wrong("no such kind: " + kind);
        }

        private void Add(bool choice, long low, long high)
        {
            if (IsChoice.Count >= _size) throw Wrong("it has more numbers than the row, which has " + _size);
            IsChoice.Add(choice);
            Low.Add(low);
            High.Add(high);
            HasChoices |= choice;
        }

        private void Box(int depth)
        {
            int ranges = 0;
            do
            {
                if (ranges++ > 0) _at++;
                double low = Bound(Until(":")), high;
                Expect(':');
                high = Bound(Until(",)"));
                if (!(low <= high)) throw Wrong("a range is empty");
            } while (Next == ',');
            Expect(')');
            int numbers = Shape(ranges > 1 || depth > 0 ? ranges : _size);
            if (ranges != 1 && ranges != numbers) throw Wrong("it has another number of ranges than of numbers");
            int start = _at;
            while (_at < _text.Length && char.IsLetterOrDigit(_text[_at])) _at++;
            string type = _text.Substring(start, _at - start).ToUpperInvariant();
            if (type.Length > 0 && Array.IndexOf(Types, type) < 0) throw Wrong("no such type: " + type);
            for (int i = 0; i < numbers; i++) Add(false, 0, 0);
        }

        private double Bound(string text)
        {
            if (text == "inf" || text == "+inf") return double.PositiveInfinity;
            if (text == "-inf") return double.NegativeInfinity;
            byte[] bytes = Encoding.ASCII.GetBytes(text);
            double value;
            if (!new UeRlNumbers().Parse(bytes, 0, bytes.Length, out value)) throw Wrong("no number: " + text);
            return value;
        }

        private long Integer(string text)
        {
            long value;
            if (!long.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out value))
                throw Wrong("no integer: " + text);
            return value;
        }

        private void Choices(string text, out long low, out long high)
        {
            int colon = text.IndexOf(':');
            low = colon < 0 ? 0 : Integer(text.Substring(0, colon));
            high = colon < 0 ? Integer(text) - 1 : Integer(text.Substring(colon + 1));
            if (high < low) throw Wrong("there is no choice");
            if (low < -16777216 || high > 16777216) throw Wrong("a float32 cannot hold these choices");
        }

        private void Discrete()
        {
            long low, high;
            Choices(Until(")"), out low, out high);
            Expect(')');
            Add(true, low, high);
        }

        private void MultiDiscrete()
        {
            int count = 0;
            long low, high;
            do
            {
                if (count++ > 0) _at++;
                Choices(Until(",)"), out low, out high);
                Add(true, low, high);
            } while (Next == ',');
            Expect(')');
            if (Shape(count) != count) throw Wrong("its shape has another number of choices");
        }

        private void MultiBinary()
        {
            long count = Integer(Until(")"));
            Expect(')');
            if (count < 1 || count > 262144) throw Wrong("MULTI_BINARY has 1 to 262144 flags");
            if (Shape((int)count) != count) throw Wrong("its shape has another number of flags");
            for (int i = 0; i < count; i++) Add(true, 0, 1);
        }

        private int Shape(int otherwise)
        {
            if (Next != '[') return otherwise;
            _at++;
            long numbers = 1;
            while (Next != ']')
            {
                numbers *= Integer(Until(",]"));
                if (numbers < 1 || numbers > 16777216) throw Wrong("its shape is wrong");
                if (Next == ',') _at++;
                else if (Next != ']') throw Wrong("its shape does not close");
            }
            _at++;
            return (int)numbers;
        }
    }

    /// <summary>Numbers as text, exact in both directions, without the culture and without allocating.</summary>
    internal sealed class UeRlNumbers
    {
        // Ulf Adams, Ryu: fast float-to-string conversion, PLDI 2018: 2^k / 5^i and the leading bits of 5^i.
        private static readonly ulong[] Inverse =
        {
            576460752303423489, 461168601842738791, 368934881474191033, 295147905179352826, 472236648286964522,
            377789318629571618, 302231454903657294, 483570327845851670, 386856262276681336, 309485009821345069,
            495176015714152110, 396140812571321688, 316912650057057351, 507060240091291761, 405648192073033409,
            324518553658426727, 519229685853482763, 415383748682786211, 332306998946228969, 531691198313966350,
            425352958651173080, 340282366920938464, 544451787073501542, 435561429658801234, 348449143727040987,
            557518629963265579, 446014903970612463, 356811923176489971, 570899077082383953, 456719261665907162,
            365375409332725730,
        };
        private static readonly ulong[] Powers =
        {
            1152921504606846976, 1441151880758558720, 1801439850948198400, 2251799813685248000, 1407374883553280000,
            1759218604441600000, 2199023255552000000, 1374389534720000000, 1717986918400000000, 2147483648000000000,
            1342177280000000000, 1677721600000000000, 2097152000000000000, 1310720000000000000, 1638400000000000000,
            2048000000000000000, 1280000000000000000, 1600000000000000000, 2000000000000000000, 1250000000000000000,
            1562500000000000000, 1953125000000000000, 1220703125000000000, 1525878906250000000, 1907348632812500000,
            1192092895507812500, 1490116119384765625, 1862645149230957031, 1164153218269348144, 1455191522836685180,
            1818989403545856475, 2273736754432320594, 1421085471520200371, 1776356839400250464, 2220446049250313080,
            1387778780781445675, 1734723475976807094, 2168404344971008868, 1355252715606880542, 1694065894508600678,
            2117582368135750847, 1323488980084844279, 1654361225106055349, 2067951531382569187, 1292469707114105741,
            1615587133892632177, 2019483917365790221, 1262177448353618888,
        };
        private static readonly double[] Tens =
        {
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
                1e19,
            1e20, 1e21, 1e22,
        };
        private const int MostDigits = 800; // more cannot tell a double from its neighbours' midpoint, but for a rest
        private const int Limbs = 400;
        private byte[] _digits;
        private uint[] _value, _power, _other;
        private int _valueLength, _powerLength, _otherLength;
        private int _exponent;

        /// <summary>Writes the shortest text that reads back to this float32; the index behind it. At most 16 bytes.</summary>
        internal static int Write(float value, byte[] into, int at)
        {
            uint bits = new Union { Value = value }.Bits;
            if ((bits & 0x80000000u) != 0) into[at++] = (byte)'-';
            uint mantissa = bits & 0x7FFFFF, exponent = (bits >> 23) & 0xFF;
            if (mantissa == 0 && exponent == 0)
            {
                into[at++] = (byte)'0';
                return at;
            }
            int e10;
            uint digits = Shortest(mantissa, exponent, out e10);
            int count = 1;
            for (uint rest = digits; rest >= 10; rest /= 10) count++;
            return Layout(digits, count, e10, into, at);
        }

        private static int Layout(ulong digits, int count, int e10, byte[] into, int at)
        {
            int point = count + e10; // of the decimal point, from the first digit on
            if (point > 16 || point < -3)
            {
                int end = at + count + (count > 1 ? 1 : 0);
                for (int i = end - 1; i > at + 1; i--, digits /= 10) into[i] = (byte)('0' + digits % 10);
                if (count > 1) into[at + 1] = (byte)'.';
                into[at] = (byte)('0' + digits % 10);
                int power = Math.Abs(point - 1);
                into[end++] = (byte)'e';
                into[end++] = (byte)(point > 0 ? '+' : '-');
                if (power >= 100) into[end++] = (byte)('0' + power / 100);
                into[end++] = (byte)('0' + power / 10 % 10);
                into[end++] = (byte)('0' + power % 10);
                return end;
            }
            if (point <= 0)
            {
                into[at++] = (byte)'0';
                into[at++] = (byte)'.';
                for (int i = point; i < 0; i++) into[at++] = (byte)'0';
                for (int i = at + count - 1; i >= at; i--, digits /= 10) into[i] = (byte)('0' + digits % 10);
                return at + count;
            }
            if (e10 >= 0)
            {
                for (int i = at + count - 1; i >= at; i--, digits /= 10) into[i] = (byte)('0' + digits % 10);
                at += count;
                for (int i = 0; i < e10; i++) into[at++] = (byte)'0';
                return at;
            }
            for (int i = at + count; i > at + point; i--, digits /= 10) into[i] = (byte)('0' + digits % 10);
            into[at + point] = (byte)'.';
            for (int i = at + point - 1; i >= at; i--, digits /= 10) into[i] = (byte)('0' + digits % 10);
            return at + count + 1;
        }

        [StructLayout(LayoutKind.Explicit)]
        private struct Union
        {
            [FieldOffset(0)] internal float Value;
            [FieldOffset(0)] internal uint Bits;
        }

        internal static int WriteDigits(ulong digits, int count, int e10, byte[] into)
        {
            return Layout(digits, count, e10, into, 0);
        }

        private static int PowerBits(int e) { return (int)(((uint)e * 1217359) >> 19) + 1; }

        private static uint MulShift(uint m, ulong factor, int shift)
        {
            ulong low = (ulong)m * (uint)factor, high = (ulong)m * (uint)(factor >> 32);
            return (uint)(((low >> 32) + high) >> (shift - 32));
        }

        private static bool DividedByFive(uint value, int times)
        {
            for (; times > 0; times--, value /= 5)
                if (value % 5 != 0) return false;
            return true;
        }

        private static uint Shortest(uint mantissa, uint exponent, out int e10)
        {
            int e2 = (exponent == 0 ? 1 : (int)exponent) - 127 - 23 - 2;
            uint m2 = exponent == 0 ? mantissa : (1u << 23) | mantissa;
            bool even = (m2 & 1) == 0;
            uint below = mantissa != 0 || exponent <= 1 ? 1u : 0u;
            uint mv = 4 * m2, mp = 4 * m2 + 2, mm = 4 * m2 - 1 - below;
            uint vr, vp, vm, last = 0;
            bool vmZeros = false, vrZeros = false;
            if (e2 >= 0)
            {
                int q = (int)(((uint)e2 * 78913) >> 18);
                e10 = q;
                int shift = -e2 + q + 59 + PowerBits(q) - 1;
                vr = MulShift(mv, Inverse[q], shift);
                vp = MulShift(mp, Inverse[q], shift);
                vm = MulShift(mm, Inverse[q], shift);
                if (q != 0 && (vp - 1) / 10 <= vm / 10)
                    last = MulShift(mv, Inverse[q - 1], -e2 + q - 1 + 59 + PowerBits(q - 1) - 1) % 10;
                if (q <= 9)
                {
                    if (mv % 5 == 0) vrZeros = DividedByFive(mv, q);
                    else if (even) vmZeros = DividedByFive(mm, q);
                    else if (DividedByFive(mp, q)) vp--;
                }
            }
            else
            {
                int q = (int)(((uint)-e2 * 732923) >> 20);
                e10 = q + e2;
                int i = -e2 - q, shift = q - (PowerBits(i) - 61);
                vr = MulShift(mv, Powers[i], shift);
                vp = MulShift(mp, Powers[i], shift);
                vm = MulShift(mm, Powers[i], shift);
                if (q != 0 && (vp - 1) / 10 <= vm / 10)
                    last = MulShift(mv, Powers[i + 1], q - 1 - (PowerBits(i + 1) - 61)) % 10;
                if (q <= 1)
                {
                    vrZeros = true;
                    if (even) vmZeros = below == 1;
                    else vp--;
                }
                else if (q < 31) vrZeros = (mv & ((1u << (q - 1)) - 1)) == 0;
            }
            for (; vp / 10 > vm / 10; vr /= 10, vp /= 10, vm /= 10, e10++)
            {
                vmZeros &= vm % 10 == 0;
                vrZeros &= last == 0;
                last = vr % 10;
            }
            if (vmZeros)
                for (; vm % 10 == 0; vr /= 10, vm /= 10, e10++)
                {
                    vrZeros &= last == 0;
                    last = vr % 10;
                }
            if (vrZeros && last == 5 && vr % 2 == 0) last = 4;
            return vr + ((vr == vm && (!even || !vmZeros)) || last >= 5 ? 1u : 0u);
        }

        /// <summary>
        /// Reads [start, end) as the nearest double, which is infinite where it is too large. False: it is no number of
        /// the grammar ("nan" and "inf" are none).
        /// </summary>
        internal bool Parse(byte[] text, int start, int end, out double value)
        {
            value = 0;
            int at = start;
            bool negative = at < end && text[at] == '-';
            if (at < end && (text[at] == '-' || text[at] == '+')) at++;
            ulong mantissa = 0;
            int significant = 0, scale = 0, first = at, digits = 0;
            bool point = false;
            for (; at < end; at++)
            {
                byte c = text[at];
                if (c == '.' && !point)
                {
                    point = true;
                    continue;
                }
                if (c < '0' || c > '9') break;
                digits++;
                if (point) scale--;
                if (significant == 0 && c == '0') continue;
                if (++significant <= 19) mantissa = mantissa * 10 + (ulong)(c - '0');
            }
            int last = at;
            if (digits == 0) return false;
            long power = 0;
            if (at < end)
            {
                if (text[at] != 'e' && text[at] != 'E') return false;
                at++;
                bool minus = at < end && text[at] == '-';
                if (at < end && (text[at] == '-' || text[at] == '+')) at++;
                if (at == end) return false;
                for (; at < end; at++)
                {
                    if (text[at] < '0' || text[at] > '9') return false;
                    if (power < 1L << 40) power = power * 10 + (text[at] - '0');
                }
                if (minus) power = -power;
            }
            power += scale;
            if (significant == 0) value = 0;
            else if (power + significant > 310) value = double.PositiveInfinity;
            else if (power + significant < -326) value = 0;
            else if (significant <= 19 && mantissa <= 1UL << 53 && power >= -22 && power <= 22)
                value = power < 0 ? (double)(long)mantissa / Tens[-power] : (double)(long)mantissa * Tens[power];
            else value = Exact(text, first, last, significant, (int)power, mantissa);
            if (negative) value = -value;
            return true;
        }

        /// <summary>The nearest double by whole numbers of any size: found by search, since they only grow.</summary>
        private double Exact(byte[] text, int first, int last, int significant, int power, ulong mantissa)
        {
            if (_value == null)
            {
                _value = new uint[Limbs];
                _power = new uint[Limbs];
                _other = new uint[Limbs];
                _digits = new byte[MostDigits + 1];
            }
            Collect(text, first, last, significant, power);
            int scale = power + significant - Math.Min(significant, 19); // of the mantissa's digits
            long guess = BitConverter.DoubleToInt64Bits(
                mantissa * Math.Pow(10, scale / 2) * Math.Pow(10, scale - scale / 2));
            long most = BitConverter.DoubleToInt64Bits(double.PositiveInfinity) - 1;
            long low = Math.Max(0, Math.Min(guess, most) - 16), high = Math.Min(most, low + 32);
            if (Compare(low, 0) < 0) low = 0;
            if (high != most && Compare(high, 0) >= 0) high = most;
            // the largest double that is not above the value
            while (low < high)
            {
                long middle = low + (high - low + 1) / 2;
                if (Compare(middle, 0) >= 0) low = middle;
                else high = middle - 1;
            }
            int half = Compare(low, 1);
            if (half > 0 || (half == 0 && (low & 1) == 1)) low++;
            return BitConverter.Int64BitsToDouble(low);
        }

        /// <summary>_value * 2^_exponent / (_power where it has one): the number that the text says.</summary>
        private void Collect(byte[] text, int first, int last, int significant, int power)
        {
            int count = 0;
            bool rest = false, leading = true;
            for (int i = first; i < last; i++)
            {
                if (text[i] == '.' || (leading && text[i] == '0')) continue;
                leading = false;
                if (count < MostDigits) _digits[count++] = (byte)(text[i] - '0');
                else rest |= text[i] != '0';
            }
            int scale = power + (significant - count);
            if (rest)
            {
                _digits[count++] = 1; // anything more than nothing
                scale--;
            }
            _valueLength = 0;
            for (int i = 0; i < count; i++) _valueLength = Multiply(_value, _valueLength, 10, _digits[i]);
            _power[0] = 1;
            _powerLength = 1;
            if (scale >= 0)
                for (int i = 0; i < scale; i++) _valueLength = Multiply(_value, _valueLength, 5, 0);
            else
                for (int i = 0; i < -scale; i++) _powerLength = Multiply(_power, _powerLength, 5, 0);
            _exponent = scale;
        }

        private static int Multiply(uint[] number, int length, uint by, uint carry)
        {
            ulong rest = carry;
            for (int i = 0; i < length; i++)
            {
                rest += (ulong)number[i] * by;
                number[i] = (uint)rest;
                rest >>= 32;
            }
            if (rest != 0) number[length++] = (uint)rest;
            return length;
        }

        /// <summary>The value against a double, or (half: 1) the middle between it and the next one: -1, 0, 1.</summary>
        private int Compare(long bits, int half)
        {
            int exponent = (int)(bits >> 52);
            ulong mantissa = (ulong)bits & ((1UL << 52) - 1);
            if (exponent == 0) exponent = 1;
            else mantissa |= 1UL << 52;
            int scale = exponent - 1075;
            if (half == 1)
            {
                mantissa = 2 * mantissa + 1;
                scale--;
            }
            // the value is _value * 2^_exponent / _power, the other one is mantissa * 2^scale
            ulong low = (uint)mantissa, high = mantissa >> 32, carry = 0;
            _otherLength = _powerLength + 2;
            for (int i = 0; i < _otherLength; i++)
            {
                // at most (2^32 - 1)^2 + (2^22)(2^32 - 1) + carry, which fits
                ulong sum = carry;
                if (i < _powerLength) sum += low * _power[i];
                carry = sum >> 32;
                ulong rest = (uint)sum;
                if (i > 0 && i <= _powerLength) rest += high * _power[i - 1];
                _other[i] = (uint)rest;
                carry += rest >> 32;
            }
            while (_otherLength > 0 && _other[_otherLength - 1] == 0) _otherLength--;
            if (_otherLength == 0) return _valueLength > 0 ? 1 : 0;
            int shift = scale - _exponent;
            return shift >= 0 ? Against(_value, _valueLength, 0, _other, _otherLength, shift)
                : Against(_value, _valueLength, -shift, _other, _otherLength, 0);
        }

        private static int Against(uint[] a, int aLength, int aShift, uint[] b, int bLength, int bShift)
        {
            int limbs = Math.Max(aLength + aShift / 32, bLength + bShift / 32) + 1;
            for (int i = limbs; i >= 0; i--)
            {
                uint x = Limb(a, aLength, aShift, i), y = Limb(b, bLength, bShift, i);
                if (x != y) return x < y ? -1 : 1;
            }
            return 0;
        }

        private static uint Limb(uint[] number, int length, int shift, int index)
        {
            int at = index - shift / 32, bits = shift % 32;
            ulong here = at >= 0 && at < length ? number[at] : 0u, below = at >= 1 && at <= length
                ? number[at - 1] : 0u;
            return (uint)((here << bits) | (bits == 0 ? 0 : below >> (32 - bits)));
        }
    }

    /// <summary>Text of the handshake, of calls and of notices; it may allocate.</summary>
    internal static class UeRlText
    {
        internal static string Integer(long value)
        {
            return value.ToString(CultureInfo.InvariantCulture);
        }

        /// <summary>A text with as few digits as it takes (15, 16 or 17) that reads back to this very double.</summary>
        internal static string Double(double value)
        {
            if (double.IsInfinity(value)) return value > 0 ? "inf" : "-inf";
            if (value == 0) return 1 / value < 0 ? "-0" : "0";
            var numbers = new UeRlNumbers();
            // 17 digits; on some runtimes the last one may be off, so its neighbours are tried too
            string exact = Math.Abs(value).ToString("E16", CultureInfo.InvariantCulture);
            ulong digits = ulong.Parse(exact[0] + exact.Substring(2, 16), CultureInfo.InvariantCulture);
            int power = int.Parse(exact.Substring(exact.IndexOf('E') + 1), NumberStyles.AllowLeadingSign,
                                  CultureInfo.InvariantCulture);
            for (int count = 15; count <= 17; count++)
            {
                ulong cut = count == 15 ? 100UL : count == 16 ? 10UL : 1UL;
                for (int step = 0; step < (count == 17 ? 41 : 1); step++)
                {
                    ulong tried = (digits + cut / 2) / cut + (ulong)((step + 1) / 2 * (step % 2 == 0 ? -1 : 1));
                    string text = Written(tried, power - count + 1);
                    byte[] bytes = Encoding.ASCII.GetBytes(text);
                    double back;
                    if (numbers.Parse(bytes, 0, bytes.Length, out back) && back == Math.Abs(value))
                        return value < 0 ? "-" + text : text;
                }
            }
            return value.ToString("R", CultureInfo.InvariantCulture);
        }

        private static string Written(ulong digits, int e10)
        {
            while (digits % 10 == 0)
            {
                digits /= 10;
                e10++;
            }
            var into = new byte[64];
            string plain = digits.ToString(CultureInfo.InvariantCulture);
            int end = UeRlNumbers.WriteDigits(digits, plain.Length, e10, into);
            return Encoding.ASCII.GetString(into, 0, end);
        }

        private const string Plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

        internal static string Percent(string text, bool name = false)
        {
            var into = new StringBuilder();
            foreach (byte one in Encoding.UTF8.GetBytes(text))
                if (Plain.IndexOf((char)one) >= 0 || (name && "/[]^*".IndexOf((char)one) >= 0)) into.Append((char)one);
                else into.Append('%').Append(one.ToString("X2", CultureInfo.InvariantCulture));
            return into.ToString();
        }

        internal static string Names(string[] names)
        {
            return string.Join(",", Array.ConvertAll(names, name => Percent(name, true)));
        }

        /// <summary>Percent-encoded UTF-8, or null where it is not.</summary>
        internal static string Unpercent(byte[] text, int start, int end)
        {
            var bytes = new byte[end - start];
            int count = 0;
            for (int i = start; i < end; i++)
            {
                if (text[i] != '%')
                {
                    bytes[count++] = text[i];
                    continue;
                }
                int high = i + 2 < end ? Hex(text[i + 1]) : -1, low = i + 2 < end ? Hex(text[i + 2]) : -1;
                if (high < 0 || low < 0) return null;
                bytes[count++] = (byte)(16 * high + low);
                i += 2;
            }
            try
            {
                return new UTF8Encoding(false, true).GetString(bytes, 0, count);
            }
            catch (ArgumentException)
            {
                return null;
            }
        }

        private static int Hex(byte c)
        {
            if (c >= '0' && c <= '9') return c - '0';
            c |= 0x20;
            return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        }
    }

    /// <summary>Lines into rows, rows into lines. Without sockets.</summary>
    internal sealed partial class UeRlCodec
    {
        internal enum Ask : byte { Nothing, Action, Reset, Running, Answered }

        internal readonly UeRlSpec Spec;
        internal readonly UeRlRows Rows;
        internal readonly Ask[] Asks; // of the envs
        internal readonly long[] Seeds, Seqs; // Seqs: the numbers of the requests that the envs are asked by; 0: none
        internal readonly string[] Options;
        internal readonly bool[] Sent; // rows of the answer that is being written
        internal int Open, Ready; // envs that were asked and not answered; of them those whose rows are written
        internal byte[] Out = new byte[65536];
        internal int OutLength;
        internal readonly int LongestLine;
        internal const int LongestCall = 1 << 20;
        private readonly UeRlGame _game;
        private readonly List<KeyValuePair<UeRlParameter, double>>[] _settings;
        private readonly UeRlNumbers _numbers = new UeRlNumbers();
        private readonly UeRlLayout[] _layouts; // of one env's agents; null: floats
        private readonly int[] _obsSizes, _actSizes;
        private readonly bool _masks;
        private readonly int _agents, _obs, _act;
        private byte[] _text;
        private long _seq; // of the line that is read
        private const string OneSeq = "SEQ stands once, at the end of the line";
        private int _last; // the env whose rows stand in Out last

        internal UeRlCodec(UeRlSpec spec, UeRlGame game)
        {
            Spec = spec;
            _game = game;
            spec.Check();
            _agents = spec.AgentsPerEnv;
            _obs = spec.ObsSize;
            _act = spec.ActSize;
            _layouts = new UeRlLayout[_agents];
            _obsSizes = new int[_agents];
            _actSizes = new int[_agents];
            int maskSize = 0, place = 0;
            var groups = spec.Groups.Count > 0 ? spec.Groups : new List<UeRlGroup> { new UeRlGroup { Name = "env" } };
            foreach (UeRlGroup group in groups)
            {
                int obs = group.ObsSize > 0 ? group.ObsSize : spec.ObsSize, act = group.ActSize > 0
                    ? group.ActSize : spec.ActSize;
                string obsSpace = group.ObsSpace ?? spec.ObsSpace, actSpace = group.ActSpace ?? spec.ActSpace;
                var layout = new UeRlLayout(actSpace ?? "BOX(-1:1)", act);
                if (obsSpace != null) new UeRlLayout(obsSpace, obs);
                maskSize = Math.Max(maskSize, layout.MaskSize);
                for (int i = 0; i < group.Count; i++, place++)
                {
                    _layouts[place] = layout;
                    _obsSizes[place] = obs;
                    _actSizes[place] = act;
                }
            }
            _masks = spec.Has("MASK") && maskSize > 0;
            Rows = new UeRlRows(spec, _masks ? maskSize : 0);
            Asks = new Ask[spec.NumEnvs];
            Seeds = new long[spec.NumEnvs];
            Seqs = new long[spec.NumEnvs];
            Options = new string[spec.NumEnvs];
            Sent = new bool[Rows.NumRows];
            _settings = new List<KeyValuePair<UeRlParameter, double>>[spec.NumEnvs];
            bool wide = spec.Has("INFO") || spec.Has("OPTIONS") || spec.Parameters.Count > 0;
            long longest = 1024 + 48L * Rows.NumRows * Math.Max(_obs + 1, _act)
                + (long)(wide ? 65536 : 64 + (_masks ? maskSize : 0)) * Rows.NumRows;
            LongestLine = (int)Math.Min(longest, 1L << 29);
            game.Begin(spec, Rows);
            TakesCalls = spec.Parameters.Count > 0 || spec.Has("TIME_SCALE") || spec.Has("PAUSE") || spec.Has("RENDER")
                || spec.Has("GOAL_REWARD");
        }

        internal readonly bool TakesCalls;

        /// <summary>The trainer has gone: nothing is asked any more.</summary>
        internal void Forget()
        {
            Array.Clear(Asks, 0, Asks.Length);
            Array.Clear(Rows.Asked, 0, Rows.NumRows);
            Array.Clear(Rows.Here, 0, Rows.NumRows);
            Array.Clear(Options, 0, Options.Length);
            Array.Clear(_settings, 0, _settings.Length);
            Array.Clear(Rows.Infos, 0, Rows.NumRows);
            Open = Ready = OutLength = 0;
        }

        // -- what the trainer says

        internal static UeRlProtocolException Broken(string why)
        {
            return new UeRlProtocolException("the trainer broke the protocol: " + why);
        }

        /// <summary>Is this line (not empty) a call?</summary>
        internal static bool IsCall(byte[] text, int start, int end)
        {
            Trim(text, ref start, ref end);
            int stop = start;
            while (stop < end && (IsLetter(text[stop]) || text[stop] == '_')) stop++;
            if (stop < end && text[stop] != '=' && text[stop] != ';' && text[stop] != ' ' && text[stop] != '\t') return false;
            return Is(text, start, stop, "GET") || Is(text, start, stop, "SET") || Is(text, start, stop, "TIME_SCALE")
                || Is(text, start, stop, "PAUSE") || Is(text, start, stop, "RENDER") || Is(text, start, stop, "GOALS");
        }

        /// <summary>Takes a request. Env: the one of an env socket, -1 on the shared channel.</summary>
        internal void Take(byte[] text, int start, int end, int env)
        {
            for (int i = start; i < end; i++)
                if ((text[i] < 0x20 && text[i] != '\t') || text[i] > 0x7E) throw Broken("bytes that are no text");
            _text = text;
            _seq = CutSeq(ref end, start);
            while (true)
            {
                int bar = start;
                while (bar < end && text[bar] != '|') bar++;
                if (bar < end && (bar + 1 == end || text[bar + 1] != '|')) throw Broken("a single |");
                if (bar < end && env >= 0) throw Broken("several rows in one line of an env's own socket");
                TakeRow(start, bar, env);
                if (bar >= end) return;
                start = bar + 2;
            }
        }

        /// <summary>Cuts the number at the line's end off: it is echoed and never judged. 0: none.</summary>
        private long CutSeq(ref int end, int start)
        {
            int at = end - 1, equals;
            while (at >= start && _text[at] != ';') at--;
            for (equals = at + 1; equals < end && _text[equals] != '='; equals++) { }
            int from = at + 1, to = equals, first = equals + 1, last = end;
            Trim(_text, ref from, ref to);
            Trim(_text, ref first, ref last);
            if (at < start || !Is(_text, from, to, "SEQ")) return 0;
            end = at;
            long value = Whole(first, last, "SEQ");
            if (value < 1 || value > 999999999999999999L) throw Broken("SEQ is 1 to 18 digits, from 1");
            return value;
        }

        private struct Field
        {
            internal int Start, End;
            internal bool Given;

            internal void Set(int start, int end, string key)
            {
                if (Given) throw Broken(key + " given twice");
                Given = true;
                Start = start;
                End = end;
            }
        }

        private void TakeRow(int start, int end, int socketEnv)
        {
            byte[] text = _text;
            Field act = default(Field), env = default(Field), agent = default(Field), seed = default(Field);
            Field options = default(Field), settings = default(Field);
            for (int at = start; at <= end;)
            {
                int stop = at;
                while (stop < end && text[stop] != ';') stop++;
                int from = at, to = stop;
                at = stop + 1;
                Trim(text, ref from, ref to);
                if (from == to)
                {
                    if (stop == end && act.Given) break; // a trailing ;
                    throw Broken("a field without key=value");
                }
                int equals = from;
                while (equals < to && text[equals] != '=') equals++;
                if (equals == to) throw Broken("a field without key=value");
                int keyStart = from, keyEnd = equals, valueStart = equals + 1, valueEnd = to;
                Trim(text, ref keyStart, ref keyEnd);
                Trim(text, ref valueStart, ref valueEnd);
                if (keyStart == keyEnd) throw Broken("a field without key=value");
                if (Is(text, keyStart, keyEnd, "ACT")) act.Set(valueStart, valueEnd, "ACT");
                else if (Is(text, keyStart, keyEnd, "ENV")) env.Set(valueStart, valueEnd, "ENV");
                else if (Is(text, keyStart, keyEnd, "AGENT")) agent.Set(valueStart, valueEnd, "AGENT");
                else if (Is(text, keyStart, keyEnd, "SEED")) seed.Set(valueStart, valueEnd, "SEED");
                else if (Is(text, keyStart, keyEnd, "OPTIONS")) options.Set(valueStart, valueEnd, "OPTIONS");
                else if (Is(text, keyStart, keyEnd, "SET")) settings.Set(valueStart, valueEnd, "SET");
                else if (Is(text, keyStart, keyEnd, "SEQ")) throw Broken(OneSeq);
            }
            if (!act.Given) throw Broken("no ACT");
            long which = socketEnv;
            if (env.Given)
            {
                which = Whole(env.Start, env.End, "ENV");
                if (which >= Spec.NumEnvs || (socketEnv >= 0 && which != socketEnv))
                    throw Broken("ENV is none of this engine's, or of this socket's");
            }
            else if (which < 0)
            {
                if (!Spec.Single) throw Broken("ENV is missing");
                which = 0;
            }
            Seqs[which] = _seq;
            if (Is(text, act.Start, act.End, "RESET")) TakeReset((int)which, agent, seed, options, settings);
            else TakeAction((int)which, act, agent);
        }

        private void TakeReset(int env, Field agent, Field seed, Field options, Field settings)
        {
            if (agent.Given && Spec.Groups.Count > 0) throw Broken("a reset is of a whole env, not of an agent");
            if (Asks[env] != Ask.Nothing) throw AskedTwice(env);
            Seeds[env] = seed.Given ? Whole(seed.Start, seed.End, "SEED") : -1;
            Options[env] = null;
            if (options.Given)
            {
                string json = UeRlText.Unpercent(_text, options.Start, options.End);
                string inner = json == null ? "" : json.Trim();
                if (inner.Length < 2 || inner[0] != '{' || inner[inner.Length - 1] != '}')
                    throw Broken("OPTIONS of env " + env + " is no percent-encoded JSON object");
                Options[env] = json;
            }
            _settings[env] = null;
            if (settings.Given)
            {
                string refused;
                _settings[env] = Settings(settings.Start, settings.End, out refused);
                if (refused != null) throw Broken("SET of env " + env + ": " + refused);
            }
            Asks[env] = Ask.Reset;
            Open++;
        }

        private static UeRlProtocolException AskedTwice(int env)
        {
            return Broken("env " + UeRlText.Integer(env) + " was asked before its answer");
        }

        private void TakeAction(int env, Field act, Field agent)
        {
            int place = 0;
            if (Spec.Groups.Count > 0)
            {
                if (!agent.Given) throw Broken("AGENT is missing");
                long given = Whole(agent.Start, agent.End, "AGENT");
                if (given >= _agents) throw Broken("there is no AGENT " + UeRlText.Integer(given));
                place = (int)given;
            }
            int row = env * _agents + place, at = row * _act, count = 0, size = _actSizes[place];
            if (Rows.Asked[row] || (Asks[env] != Ask.Nothing && Asks[env] != Ask.Action)) throw AskedTwice(env);
            byte[] text = _text;
            UeRlLayout layout = _layouts[place];
            for (int from = act.Start; from <= act.End; count++)
            {
                int stop = from;
                while (stop < act.End && text[stop] != ',') stop++;
                int start = from, end = stop;
                Trim(text, ref start, ref end);
                double value;
                if (!_numbers.Parse(text, start, end, out value)) throw NoNumber("ACT", env, start, end);
                float single = (float)value;
                if (float.IsInfinity(single)) throw NoNumber("ACT", env, start, end);
                if (count < size)
                {
                    if (!layout.Fits(count, value))
                        throw Broken("ACT of env " + env + " is no choice: " + Shown(start, end) + ", not "
                                     + layout.Low[count] + " to " + layout.High[count]);
                    Rows.Actions[at + count] = single;
                }
                from = stop + 1;
            }
            if (count != size) throw Broken("ACT of env " + env + " holds " + count + " numbers, not " + size);
            Rows.Asked[row] = true;
            if (Asks[env] == Ask.Nothing) Open++;
            Asks[env] = Ask.Action;
        }

        private UeRlProtocolException NoNumber(string field, int env, int start, int end)
        {
            return Broken(field + " of env " + env + " is not a finite number: " + Shown(start, end));
        }

        private string Shown(int start, int end)
        {
            return Encoding.ASCII.GetString(_text, start, Math.Min(end - start, 40));
        }

        private long Whole(int start, int end, string field)
        {
            long value = 0;
            if (start == end) throw Broken(field + " is not a number of 0 or more");
            for (int i = start; i < end; i++)
            {
                int digit = _text[i] - '0';
                if (digit < 0 || digit > 9) throw Broken(field + " is not a number of 0 or more");
                if (value > (long.MaxValue - digit) / 10) throw Broken(field + " is beyond 2^63 - 1");
                value = 10 * value + digit;
            }
            return value;
        }

        private List<KeyValuePair<UeRlParameter, double>> Settings(int start, int end, out string refused)
        {
            var found = new List<KeyValuePair<UeRlParameter, double>>();
            refused = null;
            for (int from = start; from <= end;)
            {
                int stop = from, colon = from;
                while (stop < end && _text[stop] != ',') stop++;
                while (colon < stop && _text[colon] != ':') colon++;
                int nameStart = from, nameEnd = colon, valueStart = Math.Min(colon + 1, stop), valueEnd = stop;
                Trim(_text, ref nameStart, ref nameEnd);
                Trim(_text, ref valueStart, ref valueEnd);
                UeRlParameter one = Parameter(nameStart, nameEnd);
                double value;
                if (one == null) refused = "there is no parameter " + Shown(nameStart, nameEnd);
                else if (!_numbers.Parse(_text, valueStart, valueEnd, out value) || double.IsInfinity(value))
                    refused = one.Name + " is not a finite number: " + Shown(valueStart, valueEnd);
                else if (value < one.Low || value > one.High)
                    refused = one.Name + " is outside of " + UeRlText.Double(one.Low) + " to "
                        + UeRlText.Double(one.High)
                        + ": " + Shown(valueStart, valueEnd);
                else if (found.Exists(other => other.Key == one)) refused = one.Name + " is given twice";
                else found.Add(new KeyValuePair<UeRlParameter, double>(one, value));
                if (refused != null) return null;
                from = stop + 1;
            }
            return found;
        }

        private UeRlParameter Parameter(int start, int end)
        {
            string name = UeRlText.Unpercent(_text, start, end);
            return Spec.Parameters.Find(one => one.Name == name);
        }

        private static bool IsLetter(byte c)
        {
            return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        }

        /// <summary>Is it this word (upper case) but for the case of letters?</summary>
        private static bool Is(byte[] text, int start, int end, string word)
        {
            if (end - start != word.Length) return false;
            for (int i = 0; i < word.Length; i++)
            {
                byte c = text[start + i];
                if (c >= 'a' && c <= 'z') c -= 32;
                if (c != word[i]) return false;
            }
            return true;
        }

        internal static void Trim(byte[] text, ref int start, ref int end)
        {
            while (start < end && (text[start] == ' ' || text[start] == '\t')) start++;
            while (start < end && (text[end - 1] == ' ' || text[end - 1] == '\t')) end--;
        }

        // -- the game

        /// <summary>Resets and hands actions out; whether any action runs now.</summary>
        internal bool Dispatch()
        {
            bool running = false;
            if (Open == 0) return false;
            for (int env = 0; env < Asks.Length; env++)
            {
                if (Asks[env] == Ask.Action)
                {
                    CheckAgents(env);
                    ClearRows(env);
                    Asks[env] = Ask.Running;
                    _game.OnAction(env);
                }
                else if (Asks[env] == Ask.Reset) Reset(env);
                running |= Asks[env] == Ask.Running;
            }
            return running;
        }

        private void CheckAgents(int env)
        {
            if (Spec.Groups.Count == 0) return;
            for (int row = env * _agents; row < (env + 1) * _agents; row++)
                if (Rows.Asked[row] != Rows.Here[row])
                    throw Broken("agent " + (row - env * _agents) + " of env " + env
                                 + (Rows.Here[row] ? " was not asked" : " is not there"));
        }

        private void ClearRows(int env)
        {
            int first = env * _agents;
            Array.Clear(Rows.Comes, first, _agents);
            Array.Clear(Rows.Rewards, first, _agents);
            Array.Clear(Rows.Terminated, first, _agents);
            Array.Clear(Rows.Truncated, first, _agents);
            int size = Rows.MaskSize;
            for (int i = first * size; i < (first + _agents) * size; i++) Rows.Masks[i] = 1;
        }

        private void Reset(int env)
        {
            var settings = _settings[env];
            _settings[env] = null;
            if (settings != null)
                foreach (var one in settings) _game.OnSetParameter(one.Key.Name, one.Value, env);
            ClearRows(env);
            int first = env * _agents, come = 0;
            for (int row = first; row < first + _agents; row++)
            {
                Rows.Comes[row] = true;
                Rows.Here[row] = false;
            }
            string options = Options[env];
            Options[env] = null;
            _game.OnReset(env, Seeds[env], options);
            for (int row = first; row < first + _agents; row++)
            {
                if (Rows.Comes[row]) come++;
                Rows.Rewards[row] = 0; // they mean nothing here
                Rows.Terminated[row] = Rows.Truncated[row] = false;
            }
            if (come == 0) throw new InvalidOperationException("env " + env + " begins without any agent");
            Asks[env] = Ask.Answered;
            Ready++;
        }

        /// <summary>Asks the game which actions have ended.</summary>
        internal void Collect()
        {
            if (Open == Ready) return;
            for (int env = 0; env < Asks.Length; env++)
                if (Asks[env] == Ask.Running && _game.OnResult(env))
                {
                    Asks[env] = Ask.Answered;
                    Ready++;
                }
        }

        // -- what the engine says

        /// <summary>Writes the rows of an env that is ready into Out.</summary>
        internal void Encode(int env)
        {
            bool answered = false;
            for (int place = 0; place < _agents; place++)
            {
                int row = env * _agents + place;
                if (!Rows.Asked[row] && (!Rows.Comes[row] || Rows.Here[row])) continue;
                answered = true;
                EncodeRow(env, place, row);
                bool over = Rows.Asked[row] && (Rows.Terminated[row] || Rows.Truncated[row]);
                Rows.Here[row] = !over;
                Rows.Asked[row] = Rows.Comes[row] = false;
            }
            Debug.Assert(answered);
            _last = env;
            Asks[env] = Ask.Nothing;
            Open--;
            Ready--;
        }

        private void EncodeRow(int env, int place, int row)
        {
            string info = Rows.Infos[row];
            Rows.Infos[row] = null;
            string infoText = info == null ? null : UeRlText.Percent(info);
            int size = _obsSizes[place], flags = _masks ? _layouts[place].MaskSize : 0;
            Reserve(128 + 17 * (size + 1) + flags + (infoText == null ? 0 : infoText.Length));
            byte[] into = Out;
            int at = OutLength;
            if (at > 0) into[at++] = into[at++] = (byte)'|';
            at = Put(into, at, "OBS=");
            float[] obs = Rows.Observations;
            for (int i = 0, from = row * _obs; i < size; i++)
            {
                if (i > 0) into[at++] = (byte)',';
                float value = obs[from + i];
                if (!(Math.Abs(value) <= float.MaxValue)) throw NotFinite("observation " + i, env, value);
                at = UeRlNumbers.Write(value, into, at);
            }
            float reward = Rows.Rewards[row];
            if (!(Math.Abs(reward) <= float.MaxValue)) throw NotFinite("reward", env, reward);
            bool truncated = Rows.Truncated[row], over = truncated || Rows.Terminated[row];
            at = Put(into, at, ";REW=");
            at = UeRlNumbers.Write(reward, into, at);
            at = Put(into, at, over ? ";DONE=1" : ";DONE=0");
            if (!Spec.Single)
            {
                at = Put(into, at, ";ENV=");
                at = PutInteger(into, at, env);
            }
            if (Spec.Groups.Count > 0)
            {
                at = Put(into, at, ";AGENT=");
                at = PutInteger(into, at, place);
            }
            if (truncated && !Rows.Terminated[row]) at = Put(into, at, ";TRUNC=1");
            if (flags > 0) at = PutMask(into, at, env, row, _layouts[place], over);
            if (infoText != null) at = Put(into, Put(into, at, ";INFO="), infoText);
            OutLength = at;
        }

        private static Exception NotFinite(string what, int env, float value)
        {
            return new InvalidOperationException(what + " of env " + env + " is "
                + value.ToString(CultureInfo.InvariantCulture));
        }

        private int PutMask(byte[] into, int at, int env, int row, UeRlLayout layout, bool over)
        {
            bool all = CheckMask(env, row, layout, over);
            if (all) return at;
            at = Put(into, at, ";MASK=");
            for (int i = 0; i < layout.MaskSize; i++)
                into[at++] = (byte)(Rows.Masks[row * Rows.MaskSize + i] != 0 ? '1' : '0');
            return at;
        }

        /// <summary>Is every choice legal? InvalidOperationException: none is, of one number.</summary>
        private bool CheckMask(int env, int row, UeRlLayout layout, bool over)
        {
            byte[] masks = Rows.Masks;
            int flag = row * Rows.MaskSize;
            bool all = true;
            for (int i = 0; i < layout.IsChoice.Count; i++)
            {
                if (!layout.IsChoice[i]) continue;
                bool any = false;
                for (long choice = layout.Low[i]; choice <= layout.High[i]; choice++, flag++)
                {
                    any |= masks[flag] != 0;
                    all &= masks[flag] != 0;
                }
                if (!any && !over)
                    throw new InvalidOperationException("the mask of env " + env + " leaves number " + i
                        + " without any choice");
            }
            return all;
        }

        /// <summary>Do the rows in Out answer another request than this env's? They do not share a line.</summary>
        internal bool Splits(int env)
        {
            return OutLength > 0 && Seqs[env] != Seqs[_last];
        }

        internal void EndLine()
        {
            Reserve(32);
            if (Seqs[_last] > 0) OutLength = PutInteger(Out, Put(Out, OutLength, ";SEQ="), Seqs[_last]);
            Out[OutLength++] = (byte)'\n';
        }

        private void Reserve(int more)
        {
            if (OutLength + more > Out.Length) Array.Resize(ref Out, Math.Max(2 * Out.Length, OutLength + more));
        }

        private static int Put(byte[] into, int at, string text)
        {
            for (int i = 0; i < text.Length; i++) into[at++] = (byte)text[i];
            return at;
        }

        private static int PutInteger(byte[] into, int at, long value)
        {
            int count = 1;
            for (long rest = value; rest >= 10; rest /= 10) count++;
            for (int i = at + count - 1; i >= at; i--, value /= 10) into[i] = (byte)('0' + value % 10);
            return at + count;
        }

        // -- calls

        /// <summary>The answer to a call, without its line feed; whatever is wrong is refused in it.</summary>
        internal string Call(byte[] text, int start, int end)
        {
            _text = text;
            long seq = 0;
            string answer;
            try
            {
                seq = CutSeq(ref end, start);
                for (int i = start; i < end; i++)
                    if ((text[i] < 0x20 && text[i] != '\t') || text[i] > 0x7E) throw Broken("bytes that are no text");
                answer = Answer(start, end);
            }
            catch (Exception error) // a call never ends the session: the game's own failures are told as well
            {
                answer = "REFUSED=" + UeRlText.Percent(error.Message);
            }
            return seq > 0 ? answer + ";SEQ=" + UeRlText.Integer(seq) : answer;
        }

        private string Answer(int start, int end)
        {
            int semicolon = start;
            while (semicolon < end && _text[semicolon] != ';') semicolon++;
            int env = -1;
            for (int from = semicolon + 1; from <= end;)
            {
                int stop = from, equals;
                while (stop < end && _text[stop] != ';') stop++;
                for (equals = from; equals < stop && _text[equals] != '='; equals++) { }
                int keyStart = from, keyEnd = equals, valueStart = Math.Min(equals + 1, stop), valueEnd = stop;
                Trim(_text, ref keyStart, ref keyEnd);
                Trim(_text, ref valueStart, ref valueEnd);
                if (equals == stop && keyStart != keyEnd) throw Broken("a field without key=value");
                if (Is(_text, keyStart, keyEnd, "SEQ")) throw Broken(OneSeq);
                if (Is(_text, keyStart, keyEnd, "ENV"))
                {
                    if (env >= 0) throw Broken("ENV given twice");
                    long given = Whole(valueStart, valueEnd, "ENV");
                    if (given >= Spec.NumEnvs) throw Broken("there is no env " + UeRlText.Integer(given));
                    env = (int)given;
                }
                from = stop + 1;
            }
            int sign = start;
            while (sign < semicolon && _text[sign] != '=') sign++;
            int nameStart = start, nameEnd = sign, first = Math.Min(sign + 1, semicolon), last = semicolon;
            Trim(_text, ref nameStart, ref nameEnd);
            Trim(_text, ref first, ref last);
            if (Is(_text, nameStart, nameEnd, "GET")) return Get(first, last, Math.Max(env, 0));
            if (Is(_text, nameStart, nameEnd, "SET")) return Set(first, last, env);
            if (Is(_text, nameStart, nameEnd, "TIME_SCALE"))
            {
                Need("TIME_SCALE");
                double scale = Number(first, last);
                if (scale < 0) throw Broken("a time scale is 0 or more");
                _game.OnTimeScale(scale);
                return "OK";
            }
            if (Is(_text, nameStart, nameEnd, "PAUSE"))
            {
                Need("PAUSE");
                if (last - first != 1 || (_text[first] != '0' && _text[first] != '1')) throw Broken("PAUSE is 0 or 1");
                _game.OnPause(_text[first] == '1');
                Paused = _text[first] == '1';
                return "OK";
            }
            if (Is(_text, nameStart, nameEnd, "RENDER"))
            {
                Need("RENDER");
                UeRlPicture one = _game.OnRender(Math.Max(env, 0));
                if (one == null || one.Pixels == null || one.Pixels.Length != one.Height * one.Width * one.Channels)
                    throw new InvalidOperationException("there is no picture, or not all of it");
                return "PICTURE=" + UeRlText.Integer(one.Height) + "," + UeRlText.Integer(one.Width) + ","
                    + UeRlText.Integer(one.Channels) + ";DATA=" + Convert.ToBase64String(one.Pixels);
            }
            Need("GOAL_REWARD");
            return Goals(first, last);
        }

        /// <summary>Has a trainer paused the game?</summary>
        internal bool Paused;

        private void Need(string feature)
        {
            if (!Spec.Has(feature)) throw new NotSupportedException("this engine does not announce " + feature);
        }

        private string Get(int start, int end, int env)
        {
            if (Spec.Parameters.Count == 0) throw new NotSupportedException("this engine has no parameters");
            var names = new List<string>();
            if (start == end)
                foreach (UeRlParameter one in Spec.Parameters) names.Add(one.Name);
            for (int from = start; start < end && from <= end;)
            {
                int stop = from;
                while (stop < end && _text[stop] != ',') stop++;
                int nameStart = from, nameEnd = stop;
                Trim(_text, ref nameStart, ref nameEnd);
                UeRlParameter one = Parameter(nameStart, nameEnd);
                if (one == null) throw Broken("there is no parameter " + Shown(nameStart, nameEnd));
                names.Add(one.Name);
                from = stop + 1;
            }
            return Values(names, env);
        }

        private string Values(List<string> names, int env)
        {
            var text = new StringBuilder();
            foreach (string name in names)
                text.Append(text.Length == 0 ? "VALUES=" : ",").Append(UeRlText.Percent(name, true)).Append(':')
                    .Append(UeRlText.Double(_game.GetParameter(name, env)));
            return text.ToString();
        }

        private string Set(int start, int end, int env)
        {
            string refused;
            var settings = Settings(start, end, out refused);
            if (refused != null) throw Broken(refused);
            foreach (var one in settings) _game.OnSetParameter(one.Key.Name, one.Value, env);
            return Values(settings.ConvertAll(one => one.Key.Name), Math.Max(env, 0));
        }

        private double Number(int start, int end)
        {
            double value;
            if (!_numbers.Parse(_text, start, end, out value) || double.IsInfinity(value))
                throw Broken("not a finite number: " + Shown(start, end));
            return value;
        }

        private string Goals(int start, int end)
        {
            var pairs = new List<double[]>();
            for (int from = start; from <= end;)
            {
                int stop = from, slash = from;
                while (stop < end && _text[stop] != '|') stop++;
                if (stop < end && (stop + 1 == end || _text[stop + 1] != '|')) throw Broken("a single |");
                while (slash < stop && _text[slash] != '/') slash++;
                if (slash == stop) throw Broken("GOALS needs achieved/desired");
                pairs.Add(Numbers(from, slash));
                pairs.Add(Numbers(slash + 1, stop));
                if (pairs[pairs.Count - 1].Length != pairs[0].Length
                    || pairs[pairs.Count - 2].Length != pairs[0].Length)
                    throw Broken("GOALS of different sizes");
                from = stop + 2;
                if (stop == end) break;
            }
            var text = new StringBuilder();
            var one = new byte[32];
            for (int i = 0; i < pairs.Count; i += 2)
            {
                float reward = _game.OnGoalReward(pairs[i], pairs[i + 1]);
                if (!(Math.Abs(reward) <= float.MaxValue))
                    throw new InvalidOperationException("a reward is not finite");
                text.Append(i == 0 ? "REW=" : ",").Append(Encoding.ASCII.GetString(one, 0, UeRlNumbers.Write(reward,
                    one, 0)));
            }
            return text.ToString();
        }

        private double[] Numbers(int start, int end)
        {
            var found = new List<double>();
            for (int from = start; from <= end;)
            {
                int stop = from;
                while (stop < end && _text[stop] != ',') stop++;
                int first = from, last = stop;
                Trim(_text, ref first, ref last);
                found.Add(Number(first, last));
                from = stop + 1;
            }
            return found.ToArray();
        }
    }

    /// <summary>A secret that trainers prove to know: docs/protocol.md, section 3.</summary>
    public static class UeRlToken
    {
        internal const int Longest = 160; // bytes of a line
        internal const double Seconds = 5.0;

        /// <summary>The token in a file, without blanks around it. ArgumentException: it is no secret.</summary>
        public static byte[] Read(string path)
        {
            string text = System.IO.File.ReadAllText(path).Trim();
            if (text.Length < 16) throw new ArgumentException("a token has 16 bytes or more: " + path);
            return Encoding.UTF8.GetBytes(text);
        }

        internal static string Nonce()
        {
            var bytes = new byte[32];
            using (RandomNumberGenerator random = RandomNumberGenerator.Create()) random.GetBytes(bytes);
            return Hex(bytes);
        }

        /// <summary>The engine's proof for a trainer whose line answers the nonce rightly; null for any other.</summary>
        internal static string ProofFor(byte[] token, string nonce, string line)
        {
            if (line.Length != 134 || !line.StartsWith("AUTH=", StringComparison.Ordinal) || line[69] != ',') return null;
            string said = nonce + ":" + line.Substring(5, 64), right = Proof(token, "trainer:" + said);
            int differs = 0;
            for (int i = 0; i < right.Length; i++) differs |= right[i] ^ line[70 + i];
            return differs == 0 ? Proof(token, "engine:" + said) : null;
        }

        private static string Proof(byte[] token, string text)
        {
            using (var hmac = new HMACSHA256(token)) return Hex(hmac.ComputeHash(Encoding.ASCII.GetBytes(text)));
        }

        private static string Hex(byte[] bytes)
        {
            return BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();
        }
    }

    /// <summary>A socket that was accepted, what has come on it and what could not be sent yet.</summary>
    internal sealed class UeRlConnection
    {
        internal readonly Socket Socket;
        internal readonly IPAddress Host;
        internal readonly string Peer;
        internal readonly double Since;
        internal byte[] In = new byte[4096], Left = new byte[0];
        internal int Head, Tail, LeftCount;
        internal int Searched; // bytes behind Head that hold no line feed
        internal bool Heard, Told, Gone;
        internal string Nonce; // while it has not proved that it knows the token

        internal UeRlConnection(Socket socket, double now)
        {
            Socket = socket;
            Since = now;
            socket.Blocking = false;
            socket.NoDelay = true;
            FindOutWhoVanishes(socket);
            var peer = (IPEndPoint)socket.RemoteEndPoint;
            Host = peer.Address;
            Peer = peer.ToString();
        }

        // A trainer may compute for as long as it likes: its system answers for it. One whose machine has vanished is
        // found out within about 20 s.
        private static void FindOutWhoVanishes(Socket socket)
        {
            const int idle = 10, every = 1; // seconds; ten questions, or nine
            try
            {
                socket.SetSocketOption(SocketOptionLevel.Socket, SocketOptionName.KeepAlive, true);
                var values = new byte[12];
                BitConverter.GetBytes(1).CopyTo(values, 0);
                BitConverter.GetBytes(1000 * idle).CopyTo(values, 4);
                BitConverter.GetBytes(1000 * every).CopyTo(values, 8);
                socket.IOControl(IOControlCode.KeepAliveValues, values, null);
            }
            catch (Exception error) when (error is SocketException || error is NotSupportedException)
            {
                // This system asks as rarely as it is set up: usually after two hours.
            }
        }

        /// <summary>Reads what is there, until `most` bytes wait. Sets Gone where the other side has closed.</summary>
        internal bool Read(int most)
        {
            bool any = false;
            while (!Gone && Tail - Head < most)
            {
                if (Head > 0 && (Head == Tail || Tail == In.Length))
                {
                    Buffer.BlockCopy(In, Head, In, 0, Tail - Head);
                    Tail -= Head;
                    Head = 0;
                }
                if (Tail == In.Length) Array.Resize(ref In, (int)Math.Min(2L * In.Length, (long)most + 4096));
                int room = In.Length - Tail;
                SocketError error;
                int count = Socket.Receive(In, Tail, room, SocketFlags.None, out error);
                if (error == SocketError.WouldBlock) break;
                if (error != SocketError.Success || count <= 0)
                {
                    Gone = true;
                    break;
                }
                Tail += count;
                Heard = any = true;
                if (count < room) break;
            }
            return any;
        }

        /// <summary>The next line, without LF and CR; false: none has come whole. The limit counts the line feed.</summary>
        internal bool NextLine(out int start, out int end)
        {
            int at = Array.IndexOf(In, (byte)'\n', Head + Searched, Tail - Head - Searched);
            start = Head;
            end = at;
            if (at < 0)
            {
                Searched = Tail - Head;
                return false;
            }
            Head = at + 1;
            Searched = 0;
            if (end > start && In[end - 1] == '\r') end--;
            return true;
        }

        /// <summary>Sends, and keeps what the system does not take at once.</summary>
        internal void Send(byte[] data, int count)
        {
            int sent = 0;
            if (LeftCount == 0) sent = Push(data, 0, count);
            if (Gone || sent == count) return;
            if (LeftCount + count - sent > Left.Length)
                Array.Resize(ref Left, Math.Max(2 * Left.Length, LeftCount + count - sent));
            Buffer.BlockCopy(data, sent, Left, LeftCount, count - sent);
            LeftCount += count - sent;
        }

        internal void Send(string line)
        {
            byte[] bytes = Encoding.ASCII.GetBytes(line + "\n");
            Send(bytes, bytes.Length);
        }

        /// <summary>Sends what is left; true: nothing is any more.</summary>
        internal bool Flush()
        {
            if (LeftCount == 0) return true;
            int sent = Push(Left, 0, LeftCount);
            Buffer.BlockCopy(Left, sent, Left, 0, LeftCount - sent);
            LeftCount -= sent;
            return LeftCount == 0;
        }

        private int Push(byte[] data, int from, int count)
        {
            int sent = 0;
            while (sent < count && !Gone)
            {
                SocketError error;
                int pushed = Socket.Send(data, from + sent, count - sent, SocketFlags.None, out error);
                if (error == SocketError.WouldBlock) break;
                if (error != SocketError.Success) Gone = true;
                else sent += pushed;
            }
            return sent;
        }

        internal void Close()
        {
            Gone = true;
            Socket.Close();
        }
    }

    /// <summary>
    /// Serves a game over TCP, one trainer at a time, both wirings. All on the thread that calls Tick(), without
    /// blocking: Tick(), or Answer() and Receive(). Wait() blocks until a trainer wants something.
    /// </summary>
    public sealed partial class UeRlBridge : IDisposable
    {
        private const double Patience = 1.0; // seconds in which all env sockets should have been heard, once one was
        // Seconds in which a first connection must say something where others wait, and where they may be its env sockets:
        // the plugin's own trainer is silent on all of them until each of its worker processes runs.
        internal static double Silence = 30.0, Starting = 900.0;
        private const double Farewell = 2.0; // seconds that a closed connection has for reading why
        private const int MostWaiting = 16, EarlyBytes = 65536, AtOnce = 64;

        public readonly UeRlSpec Spec;
        /// <summary>A secret: who does not know it is not served. Null: everybody is. See UeRlToken.Read.</summary>
        public byte[] Token;
        /// <summary>One line for people, now and then. Unless it is set: standard error.</summary>
        public Action<string> Log = line => Console.Error.WriteLine("ue_rl: " + line);
        private readonly UeRlGame _game;
        private readonly UeRlCodec _codec;
        private readonly string _handshake;
        private readonly bool _demo; // FEATURES=DEMO
        private readonly Stopwatch _clock = Stopwatch.StartNew();
        private readonly List<UeRlConnection> _members = new List<UeRlConnection>(); // of the session; the first one first
        private readonly List<UeRlConnection> _waiting = new List<UeRlConnection>(), _outside = new List<UeRlConnection>(),
            _leaving = new List<UeRlConnection>();
        private Socket _listener;
        private bool _shared, _perEnv; // the wiring, once it is known
        private bool _meansShared; // an empty line has said so
        private bool _givenUp; // a trainer that waited in silence has left
        private double _began, _lastWord, _lastLook;
        private int _asker; // the env socket that spoke last

        /// <summary>ArgumentException: what is wrong with the spec.</summary>
        public UeRlBridge(UeRlSpec spec, UeRlGame game)
        {
            if (!spec.Has("ERROR")) spec.Features.Add("ERROR"); // this file says why it ends a session
            if (!spec.Has("SEQ")) spec.Features.Add("SEQ"); // and which request each answer is to
            Spec = spec;
            _game = game;
            _handshake = spec.Handshake();
            _demo = spec.Has("DEMO");
            _codec = new UeRlCodec(spec, game);
        }

        /// <summary>Listens; port 0 takes a free one, see Port. SocketException: it cannot. InvalidOperationException:
        /// FEATURES=DEMO, and no Heuristic.</summary>
        public void Start(int port = 7777, string host = "127.0.0.1")
        {
            if (Played)
            {
                Log("heuristic mode: plays without a trainer, and listens to nobody. To be recorded it needs DEMO and INFO");
                return;
            }
            if (_demo && !HasHeuristic) throw new InvalidOperationException("DEMO needs Heuristic, of UeRlHeuristic.cs");
            IPAddress address;
            if (!IPAddress.TryParse(host, out address)) // of a name such as localhost the IPv4 address, which trainers dial
            {
                var found = Dns.GetHostAddresses(host);
                address = Array.Find(found, each => each.AddressFamily == AddressFamily.InterNetwork) ?? found[0];
            }
            _listener = new Socket(address.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
            try
            {
                _listener.Bind(new IPEndPoint(address, port));
                _listener.Listen(Math.Max(128, Spec.NumEnvs + 8));
                _listener.Blocking = false; // one that has gone again must not keep Accept
            }
            catch
            {
                _listener.Close();
                _listener = null;
                throw;
            }
        }

        public int Port { get { return _listener == null ? 0 : ((IPEndPoint)_listener.LocalEndPoint).Port; } }

        /// <summary>A trainer is being served.</summary>
        public bool HasTrainer { get { return _members.Count > 0; } }

        /// <summary>Actions run: the game has to simulate before the next Answer().</summary>
        public bool IsStepping { get; private set; }

        /// <summary>A trainer has asked for the game to stand still between requests.</summary>
        public bool IsPaused { get { return _codec.Paused; } }

        /// <summary>The handshake's line.</summary>
        public string Handshake { get { return _handshake; } }

        private double Now { get { return _clock.Elapsed.TotalSeconds; } }

        // What UeRlSharedMemory.cs fills in; without that file these calls are not compiled.
        partial void Offer(ref string handshake);
        partial void AcceptOffer(UeRlConnection one, int start, int end, ref bool taken);
        partial void WaitForMemory(int milliseconds, ref bool waited);
        partial void ReadMemory(ref bool mine);
        partial void SendFrame(ref bool mine);
        partial void LeaveMemory(string why, bool tell, ref bool mine);

        // What UeRlHeuristic.cs fills in: a person or a script plays, without a trainer or, with DEMO, to be recorded by it.
        partial void FindHeuristic(ref bool found);
        partial void Play();
        partial void ShowReady();
        partial void TakeOver();
        partial void TellTaken(int env);

        private bool HasHeuristic
        {
            get
            {
                bool found = false;
                FindHeuristic(ref found);
                return found;
            }
        }

        private bool Played { get { return HasHeuristic && !_demo; } }

        /// <summary>Once a frame: Answer(), then Receive(). True: actions run, simulate a step.</summary>
        public bool Tick()
        {
            Answer();
            return Receive();
        }

        /// <summary>Sends the states of the envs whose actions have ended; right after a simulated step.</summary>
        public void Answer()
        {
            if (_members.Count == 0 && !Played) return;
            try
            {
                _codec.Collect();
                SendReady();
            }
            catch (Exception error) when (!Played) // whatever the game throws ends the session, not the game
            {
                Failed(error);
            }
        }

        /// <summary>Takes what has come: resets are answered, actions handed out. True: actions run.</summary>
        public bool Receive()
        {
            try
            {
                if (Played)
                {
                    Play();
                }
                else
                {
                    Look();
                    Read();
                    if (_demo) TakeOver();
                }
                IsStepping = _codec.Dispatch();
                if (!IsStepping) SendReady();
            }
            catch (Exception error) when (!Played)
            {
                Failed(error);
            }
            return IsStepping;
        }

        /// <summary>Blocks for `milliseconds` at most, until there is something for Receive(). Call it while idle.</summary>
        public void Wait(int milliseconds)
        {
            bool waited = Played;
            if (!waited) WaitForMemory(milliseconds, ref waited);
            double end = Now + milliseconds / 1000.0;
            while (!waited)
            {
                if (_members.Count > 0 && _members[0].Gone) return;
                foreach (UeRlConnection member in _members)
                    if (member.Tail > member.Head + member.Searched && !Clogged) return;
                double left = end - Now;
                if (left <= 0) return;
                // Several sockets cannot be awaited without allocating; so slices, on the one that spoke last.
                bool several = _members.Count > 0 && (!_shared || _waiting.Count > 0);
                double slice = Math.Min(left, several ? 0.001 : 0.05);
                Socket socket = _members.Count == 0 ? _listener : _members[_perEnv ? _asker : 0].Socket;
                SelectMode mode = Clogged ? SelectMode.SelectWrite : SelectMode.SelectRead;
                if (socket.Poll((int)(slice * 1e6) + 1, mode)) return;
                if (several) return;
            }
        }

        /// <summary>Ends the session and stops listening.</summary>
        public void Dispose()
        {
            End("the engine was stopped");
            foreach (UeRlConnection one in _waiting) Leave(one, "the engine was stopped");
            _waiting.Clear();
            foreach (UeRlConnection one in _outside) one.Close();
            _outside.Clear();
            foreach (UeRlConnection one in _leaving) one.Close();
            _leaving.Clear();
            if (_listener != null) _listener.Close();
            _listener = null;
        }

        // -- connections

        private int EnvSockets
        {
            get { return Spec.Channel == "SHARED" || Spec.Groups.Count > 0 || _meansShared ? 0 : Spec.NumEnvs; }
        }

        private bool Decided { get { return _shared || _perEnv || EnvSockets == 0; } }

        private bool Clogged
        {
            get
            {
                foreach (UeRlConnection member in _members)
                    if (member.LeftCount > 0) return true;
                return false;
            }
        }

        /// <summary>At new connections, and at those that wait or leave. During a session only now and then.</summary>
        private void Look()
        {
            double now = Now;
            if ((_shared || _perEnv) && now - _lastLook < 0.02) return;
            _lastLook = now;
            for (int i = 0; i < AtOnce + Spec.NumEnvs && _listener != null && _listener.Poll(0,
                SelectMode.SelectRead); i++)
                Accept(now);
            for (int i = _leaving.Count - 1; i >= 0; i--)
            {
                UeRlConnection one = _leaving[i];
                one.Flush();
                one.Head = one.Tail = one.Searched = 0;
                one.Read(EarlyBytes);
                if (!one.Gone && now - one.Since < Farewell) continue;
                one.Close();
                _leaving.RemoveAt(i);
            }
            for (int i = 0; i < _outside.Count;)
                if (!LookOutside(i, now)) i++;
            for (int i = _waiting.Count - 1; i >= 0; i--) LookAtWaiting(i, now);
            if (_members.Count > 0 && _waiting.Count > 0)
            {
                // nobody is told to wait for a trainer that has gone
                foreach (UeRlConnection member in _members) member.Read(_codec.LongestLine);
                if (AnyGone()) End("the trainer has gone", false);
                else CrowdOfSession(now);
            }
            while (_members.Count == 0 && _waiting.Count > 0)
            {
                UeRlConnection first = _waiting[0];
                _waiting.RemoveAt(0);
                if (first.Gone) first.Close();
                else Begin(first);
            }
        }

        private void Accept(double now)
        {
            try
            {
                var one = new UeRlConnection(_listener.Accept(), now);
                (Token == null ? _waiting : _outside).Add(one);
                if (Token == null) return;
                one.Nonce = UeRlToken.Nonce();
                one.Send("AUTH=" + one.Nonce);
            }
            catch (SocketException)
            {
                // it has gone again; so have its address and its options
            }
        }

        /// <summary>At one that has to prove that it knows the token; true: it is no longer in that list.</summary>
        private bool LookOutside(int index, double now)
        {
            UeRlConnection one = _outside[index];
            int start, end;
            string why = null, proof = null;
            one.Read(UeRlToken.Longest);
            if (one.NextLine(out start, out end))
            {
                proof = UeRlToken.ProofFor(Token, one.Nonce, Encoding.ASCII.GetString(one.In, start, end - start).Trim());
                if (proof == null) why = "its token is wrong, or it has given none";
            }
            else if (one.Tail - one.Head >= UeRlToken.Longest || now - one.Since > UeRlToken.Seconds || index >= AtOnce)
                why = "it did not prove that it knows the token";
            if (why == null && proof == null && !one.Gone) return false;
            _outside.RemoveAt(index);
            if (proof != null)
            {
                one.Send("AUTH=" + proof);
                one.Heard = one.Tail > one.Head;
                _waiting.Add(one);
            }
            else if (why != null) Leave(one, why);
            else one.Close();
            return true;
        }

        private void LookAtWaiting(int index, double now)
        {
            UeRlConnection one = _waiting[index];
            if (one.Read(EarlyBytes)) _lastWord = now;
            if (one.Tail > one.Head)
            {
                byte said = one.In[one.Head];
                bool request = said == 'A' || said == 'a' || said == '\n' || said == '\r' || said == ' ' || said == '\t';
                if (!request || one.Tail - one.Head >= EarlyBytes)
                {
                    _waiting.RemoveAt(index);
                    Leave(one, "it spoke before it was served");
                    return;
                }
            }
            // what a trainer that died while it connected has left
            if (!one.Gone) return;
            // it had waited for a handshake: it was no env socket
            if (!one.Heard && now - one.Since > 0.8 * Silence) _givenUp = true;
            _waiting.RemoveAt(index);
            one.Close();
        }

        /// <summary>Env sockets are taken; others are told that they have to wait.</summary>
        private void CrowdOfSession(double now)
        {
            UeRlConnection first = _members[0];
            if (!Decided) TakeEnvSockets(now);
            bool full = Decided;
            int may = full ? 0 : EnvSockets;
            foreach (UeRlConnection one in _waiting)
            {
                if (one.Told || (!full && one.Host.Equals(first.Host))) continue;
                one.Told = true;
                one.Send("BUSY;SINCE=" + (now - _began).ToString("F1", CultureInfo.InvariantCulture) + ";PEER="
                    + first.Peer);
            }
            while (_waiting.Count > MostWaiting + may)
            {
                UeRlConnection last = _waiting[_waiting.Count - 1];
                _waiting.RemoveAt(_waiting.Count - 1);
                Leave(last, MostWaiting + " trainers wait already");
            }
            if (first.Heard || _waiting.Count == 0 || _members.Count > 1) return;
            double most = Silence;
            foreach (UeRlConnection one in _waiting)
            {
                if (one.Told) continue;
                if (one.Heard) return;
                if (!full && !_givenUp && one.Host.Equals(first.Host)) most = Starting;
            }
            if (now - _began < most) return;
            End("it has said nothing for " + UeRlText.Integer((long)most) + " s, and somebody else waits");
        }

        private void TakeEnvSockets(double now)
        {
            int count = EnvSockets, there = 0, spoken = 0;
            foreach (UeRlConnection one in _waiting)
            {
                if (one.Told || !one.Host.Equals(_members[0].Host)) continue;
                there++;
                if (one.Heard) spoken++;
            }
            bool patient = now - _lastWord < Patience;
            if (spoken < count && (patient || spoken == 0 || there != count)) return;
            for (int i = 0; i < _waiting.Count && _members.Count <= count;)
            {
                UeRlConnection one = _waiting[i];
                if (one.Told || !one.Host.Equals(_members[0].Host) || (spoken >= count && !one.Heard))
                {
                    i++;
                    continue;
                }
                _waiting.RemoveAt(i);
                _members.Add(one);
            }
            _perEnv = true;
            _asker = 1;
        }

        private void Begin(UeRlConnection first)
        {
            _members.Add(first);
            _shared = _perEnv = _meansShared = _givenUp = false;
            _asker = 0;
            _began = _lastWord = Now;
            _codec.Forget();
            Log("a trainer connected from " + first.Peer);
            string handshake = _handshake;
            Offer(ref handshake);
            first.Send(handshake);
            _game.OnSessionBegin(first.Peer);
        }

        private void End(string why, bool tell = true)
        {
            IsStepping = false;
            if (_members.Count == 0) return;
            Log("the session ended: " + why);
            UeRlConnection first = _members[0];
            bool full = Decided;
            bool inMemory = false;
            LeaveMemory(why, tell && !first.Gone, ref inMemory);
            if (tell && !first.Gone && !inMemory) Leave(first, why);
            else first.Close();
            for (int i = 1; i < _members.Count; i++) Leave(_members[i], null);
            _members.Clear();
            for (int i = _waiting.Count - 1; i >= 0 && !full; i--)
            {
                // env sockets of a trainer that has gone before all were there
                UeRlConnection one = _waiting[i];
                if (!one.Heard || one.Told || !one.Host.Equals(first.Host)) continue;
                _waiting.RemoveAt(i);
                one.Close();
            }
            _codec.Forget();
            _lastLook = 0;
            bool paused = _codec.Paused;
            _codec.Paused = false;
            try
            {
                if (paused) _game.OnPause(false);
                _game.OnSessionEnd(why);
            }
            catch (Exception error)
            {
                Log("the game failed at the end of a session: " + error);
            }
        }

        /// <summary>Says why, and closes once it has been read.</summary>
        private void Leave(UeRlConnection one, string why)
        {
            if (why != null) one.Send("ERROR=" + UeRlText.Percent(why));
            try
            {
                if (!one.Gone && one.Flush()) one.Socket.Shutdown(SocketShutdown.Send);
            }
            catch (SocketException)
            {
                one.Gone = true;
            }
            if (one.Gone || why == null || _leaving.Count >= AtOnce) one.Close();
            else _leaving.Add(one);
        }

        private void Failed(Exception error)
        {
            bool trainers = error is UeRlProtocolException;
            if (!trainers) Log(error.ToString());
            End(trainers ? error.Message : "the game cannot go on: " + error.Message);
        }

        // -- lines

        private void Read()
        {
            bool inMemory = false;
            if (_members.Count > 0) ReadMemory(ref inMemory);
            if (_members.Count == 0 || inMemory) return;
            bool clogged = false;
            for (int i = 0; i < _members.Count; i++)
            {
                UeRlConnection one = _members[i];
                clogged |= !one.Flush();
            }
            if (clogged && !AnyGone()) return; // a trainer that does not read is not read either
            int limit = _codec.TakesCalls ? Math.Max(_codec.LongestLine, UeRlCodec.LongestCall) : _codec.LongestLine;
            for (int place = 0; place < _members.Count; place++)
            {
                UeRlConnection one = _members[place];
                one.Read(place == 0 ? limit : _codec.LongestLine);
                if (one.Gone)
                {
                    End("the trainer has gone", false);
                    return;
                }
                if (place > 0 || Decided || one.Tail > one.Head) TakeLines(one, place, place == 0
                    ? limit : _codec.LongestLine);
            }
        }

        private bool AnyGone()
        {
            foreach (UeRlConnection one in _members)
                if (one.Gone) return true;
            return false;
        }

        private void TakeLines(UeRlConnection one, int place, int limit)
        {
            int start, end;
            while (one.NextLine(out start, out end))
            {
                if (end - start >= limit)
                    throw new UeRlProtocolException("the trainer broke the protocol: a line is too long");
                UeRlCodec.Trim(one.In, ref start, ref end);
                if (start == end)
                {
                    if (place == 0 && !_shared && !_perEnv && Spec.Channel != "PER_ENV") _meansShared = true;
                    continue;
                }
                bool taken = false;
                AcceptOffer(one, start, end, ref taken);
                if (taken) continue;
                if (place == 0 && UeRlCodec.IsCall(one.In, start, end))
                {
                    if (_codec.Open > 0)
                        throw new UeRlProtocolException("the trainer broke the protocol: a call came while a request was open");
                    one.Send(_codec.Call(one.In, start, end));
                    continue;
                }
                if (place == 0 && _perEnv) continue; // the admin socket of env sockets carries calls alone
                if (place == 0 && !_shared)
                {
                    if (Spec.Channel == "PER_ENV")
                        throw new UeRlProtocolException("the trainer broke the protocol: this engine serves env sockets only");
                    _shared = true;
                }
                if (place > 0) _asker = place;
                _codec.Take(one.In, start, end, place - 1);
            }
            if (one.Tail - one.Head < limit) return;
            if (place == 0 && _perEnv) one.Head = one.Tail = one.Searched = 0;
            else throw new UeRlProtocolException("the trainer broke the protocol: no newline within " + limit
                + " bytes");
        }

        private void SendReady()
        {
            if (_codec.Ready == 0) return;
            if (Played)
            {
                ShowReady();
                return;
            }
            bool inMemory = false;
            SendFrame(ref inMemory);
            for (int env = 0; env < Spec.NumEnvs && _codec.Ready > 0 && !inMemory; env++)
            {
                if (_codec.Asks[env] != UeRlCodec.Ask.Answered) continue;
                if (_codec.Splits(env)) SendOut(_members[0]);
                if (_demo) TellTaken(env);
                _codec.Encode(env);
                if (_perEnv) SendOut(_members[env + 1]);
            }
            if (!_perEnv && !inMemory) SendOut(_members[0]);
        }

        private void SendOut(UeRlConnection to)
        {
            _codec.EndLine();
            to.Send(_codec.Out, _codec.OutLength);
            _codec.OutLength = 0;
        }
    }
}
