// What an agent sees, as numbers of its observation: rays, a grid, and the last few observations. Plain C#, no Unity.
//
//     var rays = new UeRlRaySensor(7, 2.0, 10, "wall", "ball");
//     spec.ObsSize = rays.Size + 2;
//     int rest = rays.Write(cast, Rows.Observations, env * Rows.ObsSize);
//
// A sensor asks the game, by a delegate, what a ray meets or what lies in a cell; UeRlPhysics.cs has those for Unity's
// physics. Angles are radians from where the agent looks, positive to its left. The same sensors are in samples/cpp and
// samples/godot; all give the same numbers (tests/samples/test_sensors.py).

using System;

namespace UeRl
{
    /// <summary>How far away a ray meets something; `length` or more: nothing. tag: which of the sensor's tags, -1:
    /// something else.</summary>
    public delegate double UeRlCast(double angle, double length, out int tag);

    /// <summary>What is in the cell whose centre is so far from the agent. Bit k: tag k is there.</summary>
    public delegate uint UeRlLook(double forward, double left);

    /// <summary>A fan of rays from right to left. Each gives a flag for each tag, and distance / length, where 1 is
    /// nothing.</summary>
    public sealed class UeRlRaySensor
    {
        private const double Circle = 6.283185307179586;
        private readonly int _rays;
        private readonly double _spread, _length;

        public readonly string[] Tags;
        public readonly string[] Names;

        /// <summary>spread: radians from the first ray to the last; 2 pi or more: a full circle, from straight ahead to
        /// the left.</summary>
        public UeRlRaySensor(int rays, double spread, double length, params string[] tags)
        {
            _rays = rays;
            _spread = spread;
            _length = length;
            Tags = tags;
            Names = new string[rays * (tags.Length + 1)];
            for (int i = 0; i < Names.Length; i++)
            {
                int tag = i % (tags.Length + 1);
                Names[i] = "ray[" + i / (tags.Length + 1) + "]/" + (tag < tags.Length ? tags[tag] : "distance");
            }
        }

        public int Size { get { return Names.Length; } }

        public double Angle(int ray)
        {
            if (_spread >= Circle) return ray * (Circle / _rays);
            return _rays > 1 ? ray * (_spread / (_rays - 1)) - _spread / 2 : 0;
        }

        /// <summary>Writes Size numbers into `row` from `at` on, and returns the place behind them.</summary>
        public int Write(UeRlCast cast, float[] row, int at)
        {
            for (int ray = 0; ray < _rays; ray++)
            {
                int met;
                double distance = cast(Angle(ray), _length, out met);
                bool hit = distance < _length;
                for (int tag = 0; tag < Tags.Length; tag++) row[at++] = hit && met == tag ? 1 : 0;
                row[at++] = hit ? (float)(Math.Max(distance, 0) / _length) : 1;
            }
            return at;
        }
    }

    /// <summary>Square cells around the agent, row by row from behind it, in a row from right to left: a flag for each
    /// tag.</summary>
    public sealed class UeRlGridSensor
    {
        private readonly int _rows, _columns;

        public readonly double Cell;
        public readonly string[] Tags;
        public readonly string[] Names;

        /// <summary>cell: the side of one. 32 tags at most.</summary>
        public UeRlGridSensor(int rows, int columns, double cell, params string[] tags)
        {
            _rows = rows;
            _columns = columns;
            Cell = cell;
            Tags = tags;
            Names = new string[rows * columns * tags.Length];
            for (int i = 0; i < Names.Length; i++)
            {
                int place = i / tags.Length;
                Names[i] = "cell[" + place / columns + "][" + place % columns + "]/" + tags[i % tags.Length];
            }
        }

        public int Size { get { return Names.Length; } }

        /// <summary>Writes Size numbers into `row` from `at` on, and returns the place behind them.</summary>
        public int Write(UeRlLook look, float[] row, int at)
        {
            for (int i = 0; i < _rows; i++)
            {
                for (int k = 0; k < _columns; k++)
                {
                    uint bits = look((i - (_rows - 1) / 2.0) * Cell, (k - (_columns - 1) / 2.0) * Cell);
                    for (int tag = 0; tag < Tags.Length; tag++) row[at++] = bits >> tag & 1;
                }
            }
            return at;
        }
    }

    /// <summary>The last `depth` observations of one agent, the oldest first; before the episode began they are
    /// zeros.</summary>
    public sealed class UeRlStackSensor
    {
        private readonly int _width;
        private readonly float[] _kept;

        public readonly string[] Names;

        public UeRlStackSensor(string[] names, int depth)
        {
            _width = names.Length;
            _kept = new float[names.Length * depth];
            Names = new string[_kept.Length];
            for (int i = 0; i < Names.Length; i++)
                Names[i] = names[i % _width] + "[" + (i / _width - depth + 1) + "]";
        }

        public int Size { get { return Names.Length; } }

        /// <summary>An episode begins.</summary>
        public void Clear() { Array.Clear(_kept, 0, _kept.Length); }

        /// <summary>Once for each observation: takes the newest, writes Size numbers into `row` from `at` on, and
        /// returns the place behind them.</summary>
        public int Write(float[] numbers, float[] row, int at)
        {
            Array.Copy(_kept, _width, _kept, 0, _kept.Length - _width);
            Array.Copy(numbers, 0, _kept, _kept.Length - _width, _width);
            Array.Copy(_kept, 0, row, at, _kept.Length);
            return at + _kept.Length;
        }
    }
}
