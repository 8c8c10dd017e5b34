// The actions of a policy server for the observations on stdin.
//
//   ClientDemo HOST PORT OBS_SIZE ACT_SIZE [NUM_ENVS] [TIMEOUT_MS] [CALLS]
//
// A line of stdin is one step: NUM_ENVS * OBS_SIZE numbers, and before them `reset=ENV` for each env in which an
// episode begins. CALLS: asks so many times for each, and says the median of a call in microseconds on stderr.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.Linq;

namespace UeRl
{
    internal static class ClientDemo
    {
        private static int Main(string[] words)
        {
            CultureInfo plain = CultureInfo.InvariantCulture; // a point is a point on every machine
            if (words.Length < 4)
            {
                Console.Error.WriteLine("usage: ClientDemo HOST PORT OBS_SIZE ACT_SIZE [NUM_ENVS] [TIMEOUT_MS] "
                    + "[CALLS]");
                return 2;
            }
            try
            {
                int[] numbers = words.Skip(1).Select(word => int.Parse(word)).ToArray();
                int envs = numbers.Length > 3 ? numbers[3] : 1, timeout = numbers.Length > 4 ? numbers[4] : 5000;
                int calls = numbers.Length > 5 ? numbers[5] : 1;
                var actions = new float[envs * numbers[2]];
                var times = new List<double>();
                using (var client = new PolicyClient(words[0], numbers[0], numbers[1], numbers[2], envs, timeout))
                {
                    for (string line; (line = Console.ReadLine()) != null;)
                    {
                        string[] said = line.Split((char[])null, StringSplitOptions.RemoveEmptyEntries);
                        var begins = new bool[envs];
                        foreach (string word in said.Where(word => word.StartsWith("reset=")))
                            begins[int.Parse(word.Substring(6))] = true;
                        float[] observations = said.Where(word => !word.StartsWith("reset="))
                            .Select(word => float.Parse(word, plain)).ToArray();
                        for (int call = 0; call < calls; call++)
                        {
                            var watch = Stopwatch.StartNew();
                            client.Act(observations, actions, begins);
                            times.Add(watch.Elapsed.TotalMilliseconds * 1000);
                        }
                        Console.WriteLine(string.Join(" ", actions.Select(one => one.ToString("G9", plain))));
                    }
                }
                times.Sort();
                if (calls > 1) Console.Error.WriteLine(times[times.Count / 2].ToString("F1", plain));
                return 0;
            }
            catch (Exception error)
            {
                Console.Error.WriteLine("ClientDemo: " + error.Message);
                return 1;
            }
        }
    }
}
