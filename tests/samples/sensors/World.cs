// world.cpp in C#. With a second word it looks with UeRlPhysics into the stand-in of Unity's physics.

using System;
using System.Globalization;
using System.Linq;
using UeRl;
using UnityEngine;

public sealed class World
{
    public static double[][] Circles;
    private double _x, _y, _heading, _cell;

    private double Cast(double angle, double length, out int tag)
    {
        double ahead = Math.Cos(_heading + angle), aside = Math.Sin(_heading + angle), nearest = length;
        tag = -1;
        foreach (double[] c in Circles)
        {
            double along = (c[0] - _x) * ahead + (c[1] - _y) * aside, off = (c[1] - _y) * ahead - (c[0] - _x) * aside;
            if (along < 0 || Math.Abs(off) > c[2]) continue;
            double distance = along - Math.Sqrt(c[2] * c[2] - off * off);
            if (distance >= nearest) continue;
            nearest = distance;
            tag = (int)c[3];
        }
        return nearest;
    }

    private uint Look(double forward, double left)
    {
        uint bits = 0;
        foreach (double[] c in Circles)
        {
            double ahead = (c[0] - _x) * Math.Cos(_heading) + (c[1] - _y) * Math.Sin(_heading);
            double aside = (c[1] - _y) * Math.Cos(_heading) - (c[0] - _x) * Math.Sin(_heading);
            double far = Math.Max(Math.Abs(ahead - forward) - _cell / 2, 0);
            double wide = Math.Max(Math.Abs(aside - left) - _cell / 2, 0);
            if (far * far + wide * wide < c[2] * c[2]) bits |= 1u << (int)c[3];
        }
        return bits;
    }

    public static int Main(string[] words)
    {
        double[] given = words[0].Split().Select(x => double.Parse(x, CultureInfo.InvariantCulture)).ToArray();
        int places = (int)given[7], at = 9 + 3 * places;
        Circles = Enumerable.Range(0, (int)given[at - 1]).Select(k => given.Skip(at + 4 * k).Take(4).ToArray()).ToArray();
        var world = new World { _cell = given[5] };
        var rays = new UeRlRaySensor((int)given[0], given[1], given[2], "wall", "ball");
        var grid = new UeRlGridSensor((int)given[3], (int)given[4], given[5], "wall", "ball");
        var stack = new UeRlStackSensor(rays.Names.Concat(grid.Names).ToArray(), (int)given[6]);
        var agent = new Transform();
        var eye = new UeRlPhysics(agent);
        Console.Write(string.Join(" ", stack.Names));
        float[] seen = new float[rays.Size + grid.Size], row = new float[stack.Size];
        for (int place = 0; place < places; place++)
        {
            world._x = given[8 + 3 * place];
            world._y = given[9 + 3 * place];
            world._heading = given[10 + 3 * place];
            agent.Stand(world._x, world._y, world._heading);
            int rest = words.Length > 1 ? eye.Write(rays, seen, 0) : rays.Write(world.Cast, seen, 0);
            if (rest != rays.Size) return 1;
            rest = words.Length > 1 ? eye.Write(grid, seen, rest) : grid.Write(world.Look, seen, rest);
            if (rest != seen.Length || stack.Write(seen, row, 0) != row.Length) return 2;
            Console.Write("\n" + string.Join(" ", row.Select(x => ((double)x).ToString("R", CultureInfo.InvariantCulture))));
        }
        stack.Clear();
        stack.Write(seen, row, 0);
        return row[0] == 0 ? 0 : 3;
    }
}
