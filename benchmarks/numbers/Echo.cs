// Shows its action as its observation: Echo PORT, or Echo PORT plain, without what keeps it from shared memory. After an
// action that begins with ASKED it shows what is not finite (numbers_on_the_way.py). Or numbers through C#'s own ways:
// Echo WAY IN OUT (float64 files); how each that is not finite was written is printed.
using System;
using System.Globalization;
using System.IO;
using UeRl;

public sealed class Echo : UeRlGame
{
    public override void OnReset(int env, long seed, string options)
    {
        Array.Clear(Rows.Observations, 0, 1000);
    }

    public override void OnAction(int env)
    {
        Array.Copy(Rows.Actions, Rows.Observations, 1000);
        Rows.Rewards[0] = 0;
        if (Rows.Actions[0] != 1e30f) return;
        int what = (int)Rows.Actions[1];
        float[] special = { float.NaN, float.PositiveInfinity, float.NegativeInfinity };
        string[] written = { "NaN", "Infinity", "-Infinity" }; // as most writers that take it write it
        if (what < 4) Rows.Observations[0] = special[what - 1];
        else if (what < 7) Rows.Rewards[0] = special[what - 4];
        else Rows.Infos[0] = "{\"x\":" + written[what - 7] + "}";
    }

    public override bool OnResult(int env)
    {
        return true;
    }

    private static string Written(string way, double x)
    {
        CultureInfo plain = CultureInfo.InvariantCulture;
        if (way == "ToString()") return x.ToString(plain);
        if (way == "ToString(R)") return x.ToString("R", plain);
        if (way == "ToString(G17)") return x.ToString("G17", plain);
        return x.ToString("G9", plain);
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
                string text = Written(words[0], values[i]);
                if (double.IsNaN(values[i]) || double.IsInfinity(values[i])) Console.WriteLine("fate: " + text);
                values[i] = Read(text); // NaN: refused
            }
            Buffer.BlockCopy(values, 0, bytes, 0, bytes.Length);
            File.WriteAllBytes(words[2], bytes);
            return;
        }
        var spec = new UeRlSpec { ObsSize = 1000, ActSize = 1000, NumEnvs = 1, ActSpace = "BOX(-inf:inf)" };
        bool plain = words.Length > 1;
        if (!plain) spec.Features.Add("INFO");
        for (int i = 0; i < 200 && !plain; i++) spec.Parameters.Add(new UeRlParameter("p" + i, 0));
        var bridge = new UeRlBridge(spec, new Echo());
        bridge.Start(int.Parse(words[0]));
        for (;;) { bridge.Wait(50); if (bridge.Receive()) bridge.Answer(); }
    }
}
