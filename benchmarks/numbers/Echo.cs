// Shows its action as its observation: Echo PORT. Or numbers through C#'s own ways: Echo WAY IN OUT (float64 files).
using System;
using System.Globalization;
using System.IO;
using UeRl;

public sealed class Echo : UeRlGame
{
    public override void OnReset(int env, long seed, string options) { }

    public override void OnAction(int env)
    {
        Array.Copy(Rows.Actions, Rows.Observations, 1000);
    }

    public override bool OnResult(int env)
    {
        return true;
    }

    private static double Through(string way, double x)
    {
        CultureInfo plain = CultureInfo.InvariantCulture;
        if (way == "ToString()") return Read(x.ToString(plain));
        if (way == "ToString(R)") return Read(x.ToString("R", plain));
        if (way == "ToString(G17)") return Read(x.ToString("G17", plain));
        return Read(x.ToString("G9", plain));
    }

    private static double Read(string text)
    {
        double x;
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out x) ? x : double.NaN;
    }

    public static void Main(string[] words)
    {
        if (words.Length == 3)
        {
            byte[] bytes = File.ReadAllBytes(words[1]);
            var values = new double[bytes.Length / 8];
            Buffer.BlockCopy(bytes, 0, values, 0, bytes.Length);
            for (int i = 0; i < values.Length; i++)
            {
                try { values[i] = Through(words[0], values[i]); }
                catch (Exception) { values[i] = double.NaN; } // refused
            }
            Buffer.BlockCopy(values, 0, bytes, 0, bytes.Length);
            File.WriteAllBytes(words[2], bytes);
            return;
        }
        var spec = new UeRlSpec { ObsSize = 1000, ActSize = 1000, NumEnvs = 1, ActSpace = "BOX(-inf:inf)" };
        for (int i = 0; i < 200; i++) spec.Parameters.Add(new UeRlParameter("p" + i, 0));
        var bridge = new UeRlBridge(spec, new Echo());
        bridge.Start(int.Parse(words[0]));
        for (;;) { bridge.Wait(50); if (bridge.Receive()) bridge.Answer(); }
    }
}
