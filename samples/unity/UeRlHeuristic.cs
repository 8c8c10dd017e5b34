// Heuristic mode: a person or a script plays, and each step shows what the agent sees. No trainer is needed.
//
//     bridge.Heuristic = (rows, row) => rows.Actions[row * rows.ActSize] = Input.GetAxis("Horizontal");
//     bridge.Show = (row, text) => Console.WriteLine(text);      // "env 0: x=0.5 speed=-1 | reward 0.1, ..
//     bridge.Start();                                            // listens to nobody; go on as with a trainer
//
// With DEMO and INFO in Features it plays in the place of a trainer that is listened to, and records it.
//
// Without this file UeRlBridge.cs works, and has no such mode.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace UeRl
{
    /// <summary>What does this agent do now? Writes the ActSize numbers of its row into rows.Actions. A row is an env, or
    /// with agents env * AgentsPerEnv + agent.</summary>
    public delegate void UeRlHeuristic(UeRlRows rows, int row);

    public sealed partial class UeRlBridge
    {
        /// <summary>Plays in the trainer's place; set before Start(). An exception, also of the game, is thrown by
        /// Answer() and Receive(); with DEMO it ends the session.</summary>
        public UeRlHeuristic Heuristic;
        /// <summary>Gets each agent's row and what it sees, after each step and reset. Unless it is set: Log; with DEMO
        /// nobody.</summary>
        public Action<int, string> Show;
        private int[] _steps; // of the rows' episodes
        private double[] _returns;

        partial void FindHeuristic(ref bool found) { found = Heuristic != null; }

        // The one place where an action comes from in this mode: a request, as a trainer would write it.
        partial void Play()
        {
            if (_codec.Open > 0) return;
            byte[] line = Encoding.ASCII.GetBytes(_codec.Request(Heuristic));
            try
            {
                _codec.Take(line, 0, line.Length, -1);
            }
            catch (UeRlProtocolException error)
            {
                throw new InvalidOperationException("the heuristic's action: " + error.Message);
            }
        }

        partial void ShowReady()
        {
            var seen = new List<KeyValuePair<int, string>>();
            for (int env = 0; env < _codec.Rows.NumEnvs; env++)
            {
                if (_codec.Asks[env] != UeRlCodec.Ask.Answered) continue;
                See(env, seen);
                _codec.Encode(env); // what the game wrote is checked as for a trainer
                _codec.OutLength = 0;
            }
            foreach (KeyValuePair<int, string> one in seen)
                if (Show != null) Show(one.Key, one.Value);
                else Log(one.Value);
        }

        private void See(int env, List<KeyValuePair<int, string>> seen)
        {
            UeRlRows rows = _codec.Rows;
            _steps = _steps ?? new int[rows.NumRows];
            _returns = _returns ?? new double[rows.NumRows];
            for (int row = env * rows.AgentsPerEnv; row < (env + 1) * rows.AgentsPerEnv; row++)
            {
                if (!rows.Asked[row] && (!rows.Comes[row] || rows.Here[row])) continue;
                _steps[row] = rows.Asked[row] ? _steps[row] + 1 : 0;
                _returns[row] = rows.Asked[row] ? _returns[row] + rows.Rewards[row] : 0;
                seen.Add(new KeyValuePair<int, string>(row, _codec.Describe(row, _steps[row], _returns[row])));
            }
        }

        // The heuristic's actions instead of the trainer's, once for each step.
        partial void TakeOver()
        {
            for (int row = 0; row < _codec.Rows.NumRows; row++)
                if (_codec.Rows.Asked[row] && _codec.Asks[row / _codec.Rows.AgentsPerEnv] == UeRlCodec.Ask.Action)
                    _codec.Decide(Heuristic, row);
        }

        // INFO of a step: the action that was taken.
        partial void TellTaken(int env)
        {
            var seen = new List<KeyValuePair<int, string>>();
            if (Show != null) See(env, seen);
            foreach (KeyValuePair<int, string> one in seen) Show(one.Key, one.Value);
            _codec.TellTaken(env);
        }
    }

    internal sealed partial class UeRlCodec
    {
        /// <summary>The next step of all envs, or the reset of those whose episode is over.</summary>
        internal string Request(UeRlHeuristic decide)
        {
            var text = new StringBuilder();
            for (int env = 0; env < Rows.NumEnvs; env++)
            {
                bool over = true;
                for (int place = 0; place < _agents; place++)
                {
                    int row = env * _agents + place;
                    if (!Rows.Here[row]) continue;
                    over = false;
                    decide(Rows, row);
                    text.Append(text.Length > 0 ? "||ACT=" : "ACT=").Append(Taken(row));
                    text.Append(";ENV=").Append(UeRlText.Integer(env));
                    if (Spec.Groups.Count > 0) text.Append(";AGENT=").Append(UeRlText.Integer(place));
                }
                if (over) text.Append(text.Length > 0 ? "||" : "").Append("ACT=RESET;ENV=").Append(UeRlText.Integer(env));
            }
            return text.ToString();
        }

        private string Taken(int row)
        {
            var numbers = new string[_actSizes[row % _agents]];
            for (int i = 0; i < numbers.Length; i++) numbers[i] = UeRlText.Double(Rows.Actions[row * _act + i]);
            return string.Join(",", numbers);
        }

        /// <summary>What an agent does now, checked as a trainer's action is.</summary>
        internal void Decide(UeRlHeuristic decide, int row)
        {
            decide(Rows, row);
            for (int i = 0; i < _actSizes[row % _agents]; i++)
            {
                float value = Rows.Actions[row * _act + i];
                if (float.IsNaN(value) || float.IsInfinity(value) || !_layouts[row % _agents].Fits(i, value))
                    throw new InvalidOperationException("the heuristic's action is not of its space: " + Short(value));
            }
        }

        /// <summary>Adds demo_action to the infos of an env's step.</summary>
        internal void TellTaken(int env)
        {
            for (int row = env * _agents; row < (env + 1) * _agents; row++)
            {
                if (!Rows.Asked[row]) continue;
                string info = Rows.Infos[row] ?? "{}", rest = info.Substring(info.IndexOf('{') + 1).TrimStart();
                bool alone = rest.StartsWith("}", StringComparison.Ordinal);
                Rows.Infos[row] = "{\"demo_action\":[" + Taken(row) + (alone ? "]" : "],") + rest;
            }
        }

        /// <summary>What the agent of a row sees, with the names of its numbers.</summary>
        internal string Describe(int row, int steps, double sum)
        {
            int place = row % _agents, first = 0;
            string[] names = Spec.ObsNames;
            foreach (UeRlGroup group in Spec.Groups)
            {
                if (first <= place && place < first + group.Count) names = group.ObsNames ?? names;
                first += group.Count;
            }
            var text = new StringBuilder("env " + UeRlText.Integer(row / _agents));
            if (_agents > 1) text.Append(", agent ").Append(UeRlText.Integer(place));
            text.Append(':');
            for (int i = 0; i < _obsSizes[place]; i++)
                text.Append(' ').Append(names != null && i < names.Length ? names[i] : "obs[" + UeRlText.Integer(i) + "]")
                    .Append('=').Append(Short(Rows.Observations[row * _obs + i]));
            text.Append(" | reward ").Append(Short(Rows.Rewards[row])).Append(", return ").Append(Short(sum));
            text.Append(", step ").Append(UeRlText.Integer(steps));
            return text.Append(Rows.Terminated[row] ? ", done" : Rows.Truncated[row] ? ", truncated" : "").ToString();
        }

        private static string Short(double value)
        {
            return value.ToString("G4", CultureInfo.InvariantCulture).Replace('E', 'e');
        }
    }
}
