// A point with inertia in a square that is to reach a target; N envs in arrays. The same seeds and actions give the same
// numbers to the bit on every machine: double precision, no library function but Math.Sqrt, random numbers of its own.

using System;

namespace UeRl.Samples
{
    /// <summary>
    /// Observation: position, velocity, target minus position (6 numbers; any beyond them are half of the one six
    /// before). Action: acceleration in [-1, 1]^2. Reward: minus a tenth of the distance, 5 for arriving. An episode
    /// ends at the target, or is truncated after maxSteps; 0: no episode ends, to measure.
    /// </summary>
    public sealed class ReachGame : UeRlGame
    {
        private const double Radius = 0.15;
        private readonly int _obsSize, _maxSteps;
        private readonly double[] _x, _y, _vx, _vy, _targetX, _targetY;
        private readonly int[] _steps;
        private readonly ulong[] _random;

        public ReachGame(int numEnvs, long seed, int obsSize = 6, int maxSteps = 60)
        {
            _obsSize = obsSize;
            _maxSteps = maxSteps;
            _x = new double[numEnvs];
            _y = new double[numEnvs];
            _vx = new double[numEnvs];
            _vy = new double[numEnvs];
            _targetX = new double[numEnvs];
            _targetY = new double[numEnvs];
            _steps = new int[numEnvs];
            _random = new ulong[numEnvs];
            for (int env = 0; env < numEnvs; env++) _random[env] = (ulong)seed + (ulong)env;
        }

        public static UeRlSpec Spec(int numEnvs, string channel, int obsSize = 6)
        {
            var spec = new UeRlSpec { ObsSize = obsSize, ActSize = 2, NumEnvs = numEnvs, Channel = channel };
            if (obsSize == 6) spec.ObsNames = new[] { "x", "y", "vx", "vy", "dx", "dy" };
            spec.Features.AddRange(new[] { "SEED", "TRUNC" });
            return spec;
        }

        public override void OnReset(int env, long seed, string options)
        {
            if (seed >= 0) _random[env] = (ulong)seed;
            _x[env] = Uniform(env);
            _y[env] = Uniform(env);
            _targetX[env] = Uniform(env);
            _targetY[env] = Uniform(env);
            _vx[env] = _vy[env] = 0;
            _steps[env] = 0;
            Observe(env);
        }

        public override void OnAction(int env)
        {
            double pushX = Clip(Rows.Actions[2 * env], 1), pushY = Clip(Rows.Actions[2 * env + 1], 1);
            _vx[env] = 0.9 * _vx[env] + pushX * 0.2;
            _vy[env] = 0.9 * _vy[env] + pushY * 0.2;
            _x[env] = Clip(_x[env] + _vx[env] * 0.1, 1.5);
            _y[env] = Clip(_y[env] + _vy[env] * 0.1, 1.5);
            _steps[env]++;
        }

        public override bool OnResult(int env)
        {
            double dx = _targetX[env] - _x[env], dy = _targetY[env] - _y[env];
            double distance = Math.Sqrt(dx * dx + dy * dy);
            bool arrived = distance < Radius;
            Rows.Rewards[env] = arrived ? 5f : (float)(-distance * 0.1);
            Rows.Terminated[env] = arrived && _maxSteps > 0;
            Rows.Truncated[env] = !arrived && _maxSteps > 0 && _steps[env] >= _maxSteps;
            Observe(env);
            return true;
        }

        private void Observe(int env)
        {
            float[] into = Rows.Observations;
            int at = _obsSize * env;
            into[at] = (float)_x[env];
            into[at + 1] = (float)_y[env];
            into[at + 2] = (float)_vx[env];
            into[at + 3] = (float)_vy[env];
            into[at + 4] = (float)(_targetX[env] - _x[env]);
            into[at + 5] = (float)(_targetY[env] - _y[env]);
            for (int i = at + 6; i < at + _obsSize; i++) into[i] = into[i - 6] * 0.5f;
        }

        private static double Clip(double value, double most)
        {
            return value < -most ? -most : value > most ? most : value;
        }

        /// <summary>In [-1, 1): SplitMix64 (Steele, Lea, Flood 2014), 53 bits.</summary>
        private double Uniform(int env)
        {
            ulong z = unchecked(_random[env] += 0x9E3779B97F4A7C15UL);
            z = unchecked((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9UL);
            z = unchecked((z ^ (z >> 27)) * 0x94D049BB133111EBUL);
            z ^= z >> 31;
            return (z >> 11) * (2.0 / 9007199254740992.0) - 1.0;
        }
    }
}
