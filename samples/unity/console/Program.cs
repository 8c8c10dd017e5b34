// A console engine: the reach task, as fast as a trainer asks; in shared memory with UeRlSharedMemory.cs. With
// --heuristic a script plays so many episodes without a trainer, and each step is shown; with --demo it plays while a
// trainer records it (ue-rl demos record).
//
//     mcs -out:samples/unity/build/engine.exe samples/unity/UeRl{Bridge,SharedMemory,Heuristic}.cs \
//         samples/unity/console/*.cs
//     mono samples/unity/build/engine.exe --port 7777 --num-envs 16 --seed 1

using System;
using System.Globalization;
using System.Net.Sockets;

namespace UeRl.Samples
{
    public static class Program
    {
        private const string Usage = "usage: engine.exe [--port N] [--num-envs N] [--obs-size N] [--max-steps N] "
            + "[--per-env] [--seed N] [--token-file FILE] [--heuristic EPISODES] [--demo]";

        public static int Main(string[] arguments)
        {
            long port = 7777, numEnvs = 8, seed = 0, obsSize = 6, maxSteps = 60, episodes = 0;
            bool perEnv = false, demo = false;
            string token = null;
            for (int i = 0; i < arguments.Length; i++)
            {
                bool number = i + 1 < arguments.Length;
                if (arguments[i] == "--per-env") perEnv = true;
                else if (arguments[i] == "--demo") demo = true;
                else if (number && arguments[i] == "--token-file") token = arguments[++i];
                else if (number && arguments[i] == "--port" && Integer(arguments[i + 1], 65535, out port)) i++;
                else if (number && arguments[i] == "--num-envs" && Integer(arguments[i + 1], 65536, out numEnvs)) i++;
                else if (number && arguments[i] == "--obs-size" && Integer(arguments[i + 1], 4096, out obsSize)) i++;
                else if (number && arguments[i] == "--max-steps" && Integer(arguments[i + 1], 65536, out maxSteps)) i++;
                else if (number && arguments[i] == "--heuristic" && Integer(arguments[i + 1], 65536, out episodes)) i++;
                else if (number && arguments[i] == "--seed" && Integer(arguments[i + 1], long.MaxValue, out seed)) i++;
                else
                {
                    Console.Error.WriteLine(Usage);
                    return 2;
                }
            }
            if (obsSize < 6 || numEnvs < 1 || (demo && episodes > 0))
            {
                Console.Error.WriteLine(Usage);
                return 2;
            }
            var game = new ReachGame((int)numEnvs, seed, (int)obsSize, (int)maxSteps);
            UeRlSpec spec = ReachGame.Spec((int)numEnvs, perEnv ? "PER_ENV" : "ANY", (int)obsSize);
            if (demo) spec.Features.AddRange(new[] { "DEMO", "INFO" });
            using (var bridge = new UeRlBridge(spec, game))
            {
                if (token != null) bridge.Token = UeRlToken.Read(token);
                if (demo || episodes > 0) bridge.Heuristic = TowardsTarget;
                if (episodes > 0)
                {
                    bridge.Show = (row, text) =>
                    {
                        Console.WriteLine(text);
                        if (game.Rows.Terminated[row] || game.Rows.Truncated[row]) episodes--;
                    };
                    while (episodes > 0)
                        if (bridge.Receive()) bridge.Answer();
                    return 0;
                }
                try
                {
                    bridge.Start((int)port);
                }
                catch (SocketException error)
                {
                    Console.Error.WriteLine("cannot listen on 127.0.0.1:" + port + ": " + error.Message);
                    return 1;
                }
                Console.WriteLine("listening on tcp://127.0.0.1:" + bridge.Port);
                Console.Out.Flush();
                while (true)
                {
                    bridge.Wait(50);
                    if (bridge.Receive()) bridge.Answer(); // the game has simulated in OnAction
                }
            }
        }

        private static void TowardsTarget(UeRlRows rows, int row)
        {
            int seen = row * rows.ObsSize, action = row * rows.ActSize;
            for (int i = 0; i < 2; i++)
            {
                float push = (float)(4 * rows.Observations[seen + 4 + i] - 2 * rows.Observations[seen + 2 + i]);
                rows.Actions[action + i] = Math.Max(-1, Math.Min(1, push));
            }
        }

        private static bool Integer(string text, long most, out long value)
        {
            return long.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out value) && value <= most;
        }
    }
}
