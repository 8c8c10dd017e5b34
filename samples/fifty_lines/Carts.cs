// Carts on a line: keep each near 0. The action pushes, and an episode has 100 steps.
//   mcs -out:carts.exe samples/unity/UeRlBridge.cs samples/fifty_lines/Carts.cs && mono carts.exe [PORT]
using System;
using UeRl;

public sealed class Carts : UeRlGame
{
    private readonly float[] _x = new float[4], _speed = new float[4];
    private readonly int[] _steps = new int[4];
    private readonly Random[] _random = { new Random(0), new Random(1), new Random(2), new Random(3) };

    public override void OnReset(int env, long seed, string options)
    {
        if (seed >= 0) _random[env] = new Random((int)(seed % int.MaxValue));
        _x[env] = (float)(2 * _random[env].NextDouble() - 1);
        _speed[env] = _steps[env] = 0;
        Observe(env);
    }

    public override void OnAction(int env) // one step of the game
    {
        _speed[env] += 0.1f * Rows.Actions[env];
        _x[env] += _speed[env];
        _steps[env]++;
    }

    public override bool OnResult(int env) // the next episode begins when the trainer says so, not here
    {
        Rows.Rewards[env] = 1 - Math.Abs(_x[env]);
        Rows.Terminated[env] = Math.Abs(_x[env]) > 3;
        Rows.Truncated[env] = !Rows.Terminated[env] && _steps[env] >= 100;
        Observe(env);
        return true; // false: the action still runs, ask again in the next tick
    }

    private void Observe(int env)
    {
        Rows.Observations[2 * env] = _x[env];
        Rows.Observations[2 * env + 1] = _speed[env];
    }

    public static void Main(string[] arguments)
    {
        var spec = new UeRlSpec { ObsSize = 2, ActSize = 1, NumEnvs = 4 };
        spec.Features.AddRange(new[] { "SEED", "TRUNC" });
        var bridge = new UeRlBridge(spec, new Carts());
        bridge.Start(arguments.Length > 0 ? int.Parse(arguments[0]) : 7777);
        for (;;) { bridge.Wait(50); if (bridge.Receive()) bridge.Answer(); }
    }
}
