// The actions of a model for the observations on stdin, one row a line, all rows in one batch.
//
//   OnnxDemo MODEL.onnx OBS_SIZE ACT_SIZE [CALLS [FLAGS]] < observations.txt
//
// CALLS: asks so many times and says the median of a call in microseconds on stderr. FLAGS: behind the numbers of each
// row stand so many flags of its legal choices, 1 = legal.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.Linq;

namespace UeRl
{
    internal static class OnnxDemo
    {
        private static int Main(string[] words)
        {
            CultureInfo plain = CultureInfo.InvariantCulture; // a point is a point on every machine
            if (words.Length < 3)
            {
                Console.Error.WriteLine("usage: OnnxDemo MODEL.onnx OBS_SIZE ACT_SIZE [CALLS [FLAGS]]");
                return 2;
            }
            try
            {
                int obs = int.Parse(words[1]), act = int.Parse(words[2]);
                using (var policy = new OnnxPolicy(words[0], obs, act))
                {
                    string[] said = Console.In.ReadToEnd().Split((char[])null, StringSplitOptions.RemoveEmptyEntries);
                    float[] numbers = said.Select(text => float.Parse(text, plain)).ToArray();
                    int flags = words.Length > 4 ? int.Parse(words[4]) : 0, width = obs + flags;
                    float[] observations = numbers.Where((_, at) => at % width < obs).ToArray();
                    float[] masks = flags == 0 ? null : numbers.Where((_, at) => at % width >= obs).ToArray();
                    var actions = new float[observations.Length / obs * act];
                    var times = new List<double>();
                    for (int calls = words.Length > 3 ? int.Parse(words[3]) : 1; calls > 0; calls--)
                    {
                        var watch = Stopwatch.StartNew();
                        policy.Act(observations, actions, masks);
                        times.Add(watch.Elapsed.TotalMilliseconds * 1000);
                    }
                    for (int i = 0; i < actions.Length; i++) // nine digits are a float32, exactly
                        Console.Write(actions[i].ToString("G9", plain) + ((i + 1) % act == 0 ? "\n" : " "));
                    times.Sort();
                    if (times.Count > 1) Console.Error.WriteLine(times[times.Count / 2].ToString("F2", plain));
                }
                return 0;
            }
            catch (Exception error)
            {
                Console.Error.WriteLine("OnnxDemo: " + error.GetBaseException().Message);
                return 1;
            }
        }
    }
}
