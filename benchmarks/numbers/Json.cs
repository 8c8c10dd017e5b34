// Numbers through JSON in C#: Json WAY IN OUT (float64 files); how each number that is not finite was written is printed.
// NaN comes back where a writer or a reader refused it.
using System;
using System.Globalization;
using System.IO;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Web.Script.Serialization;
using Newtonsoft.Json;

public static class Json
{
    private static readonly DataContractJsonSerializer Contract = new DataContractJsonSerializer(typeof(double));
    private static readonly JavaScriptSerializer Script = new JavaScriptSerializer();

    private static string Written(string way, double x)
    {
        if (way == "Newtonsoft.Json") return JsonConvert.SerializeObject(x);
        if (way == "JavaScriptSerializer") return Script.Serialize(x);
        using (var stream = new MemoryStream())
        {
            Contract.WriteObject(stream, x);
            return Encoding.UTF8.GetString(stream.ToArray());
        }
    }

    private static double Read(string way, string text)
    {
        if (way == "Newtonsoft.Json") return JsonConvert.DeserializeObject<double>(text);
        if (way == "JavaScriptSerializer") return Script.Deserialize<double>(text);
        using (var stream = new MemoryStream(Encoding.UTF8.GetBytes(text))) return (double)Contract.ReadObject(stream);
    }

    public static void Main(string[] words)
    {
        System.Threading.Thread.CurrentThread.CurrentCulture = CultureInfo.InvariantCulture;
        byte[] bytes = File.ReadAllBytes(words[1]);
        var values = new double[bytes.Length / 8];
        Buffer.BlockCopy(bytes, 0, values, 0, bytes.Length);
        for (int i = 0; i < values.Length; i++)
        {
            bool finite = !double.IsNaN(values[i]) && !double.IsInfinity(values[i]);
            try
            {
                string text = Written(words[0], values[i]);
                if (!finite) Console.WriteLine("fate: " + text);
                values[i] = Read(words[0], text);
            }
            catch (Exception error)
            {
                values[i] = double.NaN;
                if (!finite) Console.WriteLine("refused: " + error.GetType().Name);
            }
        }
        Buffer.BlockCopy(values, 0, bytes, 0, bytes.Length);
        File.WriteAllBytes(words[2], bytes);
    }
}
