// Games that use what the reach task does not: masks, agents, parameters, calls, infos, long actions, exceptions.

using System;
using System.Threading;

namespace UeRl.Tests
{
    /// <summary>Counts up. Masks, options, parameters and every call; by its options it throws, or sends NaN.</summary>
    public sealed class KitchenSink : UeRlGame
    {
        /// <summary>Of the seeds from 1000 on, where there are no options.</summary>
        private static readonly string[] Moods = { "slow", "fail at reset", "fail in step", "nan", "no choice" };
        private readonly int[] _steps;
        private readonly string[] _mood;
        private double _scale = 1;
        private bool _paused;
        private readonly bool _plain;

        public KitchenSink(int numEnvs, bool plain)
        {
            _plain = plain;
            _steps = new int[numEnvs];
            _mood = new string[numEnvs];
        }

        /// <summary>Plain: without what travels in text alone, so that shared memory is on offer.</summary>
        public static UeRlSpec Spec(int numEnvs, bool plain)
        {
            var spec = new UeRlSpec { ObsSize = 4, ActSize = 2, NumEnvs = numEnvs };
            spec.ActSpace = "MULTI_DISCRETE(-1:1,2)";
            spec.ObsSpace = "BOX(-inf:inf)";
            spec.ObsNames = new[] { "step", "gravity[m/s^2]", "sum of actions", "seed" };
            spec.Features.AddRange(new[] { "SEED", "TRUNC", "MASK" });
            if (plain) return spec;
            spec.Features.AddRange(new[] { "OPTIONS", "INFO", "PAUSE", "TIME_SCALE", "RENDER", "GOAL_REWARD" });
            spec.Parameters.Add(new UeRlParameter("gravity", 9.8, 0, 20));
            spec.Parameters.Add(new UeRlParameter("top speed", 0.1));
            return spec;
        }

        public override void OnReset(int env, long seed, string options)
        {
            _steps[env] = 0;
            _mood[env] = options ?? (seed >= 1000 ? Moods[seed - 1000] : "");
            if (_mood[env].Contains("fail at reset")) throw new InvalidOperationException("the level is missing");
            Observe(env, seed);
        }

        public override void OnAction(int env)
        {
            _steps[env]++;
        }

        public override bool OnResult(int env)
        {
            if (_mood[env].Contains("fail in step")) throw new DivideByZeroException("a bug of the game");
            if (_mood[env].Contains("slow") && _steps[env]++ % 4 != 0) return false; // four ticks for each action
            Rows.Rewards[env] = Rows.Actions[2 * env] + 2 * Rows.Actions[2 * env + 1];
            Rows.Terminated[env] = _steps[env] >= 40;
            Rows.Truncated[env] = _steps[env] == 20 || _mood[env].Contains("short");
            if (Rows.Truncated[env]) Rows.Infos[env] = "{\"is_success\": true, \"where\": \"Zürich\"}";
            Observe(env, 0);
            if (_mood[env].Contains("nan")) Rows.Observations[4 * env + 2] = float.NaN;
            return true;
        }

        private void Observe(int env, long seed)
        {
            Rows.Observations[4 * env] = _steps[env];
            Rows.Observations[4 * env + 1] = _plain ? 9.8f : (float)GetParameter("gravity", env);
            float sum = Rows.Actions[2 * env] + Rows.Actions[2 * env + 1];
            Rows.Observations[4 * env + 2] = _steps[env] == 0 ? 0 : sum;
            Rows.Observations[4 * env + 3] = seed;
            int choice = _steps[env] % 3; // this one is illegal
            Rows.Masks[5 * env + choice] = 0;
            if (_mood[env].Contains("no choice") && _steps[env] > 0) Array.Clear(Rows.Masks, 5 * env, 3);
        }

        public override void OnTimeScale(double scale)
        {
            if (scale > 100) throw new ArgumentException("not so fast");
            _scale = scale;
        }

        public override void OnPause(bool paused)
        {
            if (paused == _paused) throw new InvalidOperationException("it is so already");
            _paused = paused;
        }

        public override UeRlPicture OnRender(int env)
        {
            return new UeRlPicture { Height = 2, Width = 1, Channels = 3, Pixels = new byte[] { 0, 1, 2, 3,
                (byte)env, 255 } };
        }

        public override float OnGoalReward(double[] achieved, double[] desired)
        {
            double sum = 0;
            for (int i = 0; i < achieved.Length; i++) sum += Math.Abs(achieved[i] - desired[i]);
            return (float)(-sum * _scale);
        }
    }

    /// <summary>Two hiders, the second of which comes in step 2, and a seeker, that ends in step 3.</summary>
    public sealed class Agents : UeRlGame
    {
        private readonly int[] _steps;

        public Agents(int numEnvs)
        {
            _steps = new int[numEnvs];
        }

        public static UeRlSpec Spec(int numEnvs)
        {
            var spec = new UeRlSpec { ObsSize = 3, ActSize = 2, NumEnvs = numEnvs };
            spec.Features.Add("TRUNC");
            spec.Groups.Add(new UeRlGroup { Name = "hider", Count = 2, ObsSize = 2 });
            spec.Groups.Add(new UeRlGroup { Name = "seeker", ActSize = 1, ActSpace = "DISCRETE(3)" });
            return spec;
        }

        public override void OnReset(int env, long seed, string options)
        {
            _steps[env] = 0;
            Rows.Comes[3 * env + 1] = false;
            Observe(env);
        }

        public override void OnAction(int env)
        {
            _steps[env]++;
        }

        public override bool OnResult(int env)
        {
            int step = _steps[env];
            if (step == 2) Rows.Comes[3 * env + 1] = true;
            for (int row = 3 * env; row < 3 * env + 3; row++)
            {
                Rows.Rewards[row] = Rows.Actions[2 * row];
                Rows.Truncated[row] = step >= 6;
            }
            Rows.Terminated[3 * env + 2] = step == 3;
            Observe(env);
            return true;
        }

        private void Observe(int env)
        {
            for (int place = 0; place < 3; place++)
                for (int i = 0; i < 3; i++) Rows.Observations[3 * (3 * env + place) + i] = 100 * env + 10 * place
                    + _steps[env];
        }
    }
}
