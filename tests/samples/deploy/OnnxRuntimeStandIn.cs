// A stand-in for the NuGet package Microsoft.ML.OnnxRuntime: the few types that samples/deploy/csharp uses, over the
// real library.
//
// OrtGetApiBase()->GetApi(version) returns a table of functions. A function's position in it never changes, since new
// ones are appended, so each is called by its position here. Those used are there since version 12. Each returns null
// or a status, except the ones that release.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;

namespace Microsoft.ML.OnnxRuntime
{
    public class OnnxRuntimeException : Exception
    {
        public OnnxRuntimeException(string text) : base(text) { }
    }

    public sealed class OrtEnv
    {
        private static readonly OrtEnv One = new OrtEnv();

        public static OrtEnv Instance() { return One; }

        public void DisableTelemetryEvents() { Api.Check(Api.Of<Api.One>(6)(Api.Env)); }
    }

    internal static class Api
    {
        internal delegate void Release(IntPtr a);
        internal delegate IntPtr Text(IntPtr status);
        internal delegate IntPtr One(IntPtr a);
        internal delegate IntPtr GetTable(uint version);
        internal delegate IntPtr Make0(out IntPtr made);
        internal delegate IntPtr Make1(IntPtr a, out IntPtr made);
        internal delegate IntPtr Make2(int a, int b, out IntPtr made);
        internal delegate IntPtr MakeEnv(int level, byte[] name, out IntPtr made);
        internal delegate IntPtr MakeSession(IntPtr env, byte[] file, IntPtr options, out IntPtr made);
        internal delegate IntPtr MakeTensor(IntPtr memory, IntPtr data, UIntPtr bytes, long[] shape, UIntPtr axes,
            int type, out IntPtr made);
        internal delegate IntPtr Set(IntPtr a, int value);
        internal delegate IntPtr Count(IntPtr a, out UIntPtr count);
        internal delegate IntPtr At(IntPtr a, UIntPtr index, out IntPtr made);
        internal delegate IntPtr NameAt(IntPtr a, UIntPtr index, IntPtr allocator, out IntPtr text);
        internal delegate IntPtr Shape(IntPtr a, [Out] long[] shape, UIntPtr axes);
        internal delegate IntPtr Keys(IntPtr a, IntPtr allocator, out IntPtr keys, out long count);
        internal delegate IntPtr Value(IntPtr a, IntPtr allocator, byte[] key, out IntPtr text);
        internal delegate IntPtr Free(IntPtr allocator, IntPtr text);
        internal delegate IntPtr RunAll(IntPtr a, IntPtr options, IntPtr[] inNames, IntPtr[] ins, UIntPtr inCount,
            IntPtr[] outNames, UIntPtr outCount, IntPtr[] outs);

        [DllImport("onnxruntime")]
        private static extern IntPtr OrtGetApiBase();

        private static readonly IntPtr Table = Marshal.GetDelegateForFunctionPointer<GetTable>(
            Marshal.ReadIntPtr(OrtGetApiBase()))(12);
        private static readonly Dictionary<int, Delegate> Known = new Dictionary<int, Delegate>();

        internal static T Of<T>(int position) where T : class
        {
            lock (Known)
            {
                if (!Known.TryGetValue(position, out Delegate one))
                    Known[position] = one = Marshal.GetDelegateForFunctionPointer(
                        Marshal.ReadIntPtr(Table, position * IntPtr.Size), typeof(T));
                return (T)(object)one;
            }
        }

        internal static void Check(IntPtr status)
        {
            if (status == IntPtr.Zero) return;
            string text = Marshal.PtrToStringAnsi(Of<Text>(2)(status));
            Of<Release>(93)(status);
            throw new OnnxRuntimeException(text);
        }

        internal static byte[] Utf8(string text) { return Encoding.UTF8.GetBytes(text + "\0"); }

        internal static readonly IntPtr Allocator = Made((out IntPtr made) => Of<Make0>(78)(out made));
        internal static readonly IntPtr Memory = Made((out IntPtr made) => Of<Make2>(69)(1, 0, out made));
        internal static readonly IntPtr Env = Made((out IntPtr made) => Of<MakeEnv>(3)(3, Utf8("C#"), out made));

        internal static IntPtr Made(Make0 make)
        {
            Check(make(out IntPtr made));
            return made;
        }

        internal static string Taken(IntPtr text)
        {
            int length = 0;
            while (Marshal.ReadByte(text, length) != 0) length++;
            var bytes = new byte[length];
            Marshal.Copy(text, bytes, 0, length);
            Check(Of<Free>(76)(Allocator, text));
            return Encoding.UTF8.GetString(bytes);
        }
    }

    public abstract class Owned : IDisposable
    {
        internal IntPtr Handle;
        private readonly int _release;
        internal Owned(IntPtr handle, int release) { (Handle, _release) = (handle, release); }

        public virtual void Dispose()
        {
            if (Handle != IntPtr.Zero) Api.Of<Api.Release>(_release)(Handle);
            Handle = IntPtr.Zero;
        }
    }

    public class RunOptions : Owned
    {
        public RunOptions() : base(Api.Made((out IntPtr made) => Api.Of<Api.Make0>(39)(out made)), 97) { }
    }

    public class SessionOptions : Owned
    {
        public SessionOptions() : base(Api.Made((out IntPtr made) => Api.Of<Api.Make0>(10)(out made)), 100) { }
        public int IntraOpNumThreads { set { Api.Check(Api.Of<Api.Set>(24)(Handle, value)); } }
    }

    public class OrtValue : Owned
    {
        private GCHandle _pin;
        private OrtValue(IntPtr handle, GCHandle pin) : base(handle, 96) { _pin = pin; }

        public static OrtValue CreateTensorValueFromMemory<T>(T[] data, long[] shape) where T : struct
        {
            if (typeof(T) != typeof(float)) throw new NotSupportedException("float only");
            GCHandle pin = GCHandle.Alloc(data, GCHandleType.Pinned);
            UIntPtr bytes = (UIntPtr)(ulong)(4L * data.Length), axes = (UIntPtr)(uint)shape.Length;
            return new OrtValue(Api.Made((out IntPtr made) => Api.Of<Api.MakeTensor>(49)(
                Api.Memory, pin.AddrOfPinnedObject(), bytes, shape, axes, 1, out made)), pin);
        }

        public override void Dispose()
        {
            base.Dispose();
            if (_pin.IsAllocated) _pin.Free();
        }
    }

    public class NodeMetadata
    {
        public int[] Dimensions { get; internal set; }
    }

    public class ModelMetadata
    {
        public Dictionary<string, string> CustomMetadataMap { get; } = new Dictionary<string, string>();
    }

    public class InferenceSession : Owned
    {
        private readonly Dictionary<string, IntPtr> _names = new Dictionary<string, IntPtr>();

        public InferenceSession(string file, SessionOptions options)
            : base(Api.Made((out IntPtr made) => Api.Of<Api.MakeSession>(7)(
                Api.Env, Api.Utf8(file), options.Handle, out made)), 95)
        {
            InputMetadata = Nodes(30, 36, 33);
            OutputMetadata = Nodes(31, 37, 34);
            OverridableInitializerMetadata = Nodes(32, 38, 35);
            IntPtr model = Api.Made((out IntPtr made) => Api.Of<Api.Make1>(111)(Handle, out made));
            Api.Check(Api.Of<Api.Keys>(123)(model, Api.Allocator, out IntPtr keys, out long count));
            for (int i = 0; i < count; i++)
            {
                string key = Api.Taken(Marshal.ReadIntPtr(keys, i * IntPtr.Size));
                ModelMetadata.CustomMetadataMap[key] = Api.Taken(Api.Made((out IntPtr made) =>
                    Api.Of<Api.Value>(116)(model, Api.Allocator, Api.Utf8(key), out made)));
            }
            if (count > 0) Api.Check(Api.Of<Api.Free>(76)(Api.Allocator, keys));
            Api.Of<Api.Release>(118)(model);
        }

        public IReadOnlyDictionary<string, NodeMetadata> InputMetadata { get; }
        public IReadOnlyDictionary<string, NodeMetadata> OutputMetadata { get; }
        public IReadOnlyDictionary<string, NodeMetadata> OverridableInitializerMetadata { get; }
        public ModelMetadata ModelMetadata { get; } = new ModelMetadata();

        private Dictionary<string, NodeMetadata> Nodes(int count, int name, int type)
        {
            var nodes = new Dictionary<string, NodeMetadata>();
            Api.Check(Api.Of<Api.Count>(count)(Handle, out UIntPtr all));
            for (uint i = 0; i < (uint)all; i++)
            {
                UIntPtr at = (UIntPtr)i;
                string text = Api.Taken(Api.Made((out IntPtr made) =>
                    Api.Of<Api.NameAt>(name)(Handle, at, Api.Allocator, out made)));
                IntPtr info = Api.Made((out IntPtr made) => Api.Of<Api.At>(type)(Handle, at, out made));
                IntPtr tensor = Api.Made((out IntPtr made) => Api.Of<Api.Make1>(55)(info, out made));
                Api.Check(Api.Of<Api.Count>(61)(tensor, out UIntPtr axes));
                var shape = new long[(int)axes];
                Api.Check(Api.Of<Api.Shape>(62)(tensor, shape, axes));
                Api.Of<Api.Release>(98)(info);
                nodes[text] = new NodeMetadata { Dimensions = shape.Select(n => (int)n).ToArray() };
                byte[] bytes = Api.Utf8(text);
                _names[text] = Marshal.AllocHGlobal(bytes.Length);
                Marshal.Copy(bytes, 0, _names[text], bytes.Length);
            }
            return nodes;
        }

        public void Run(RunOptions options, IReadOnlyCollection<string> inputNames,
            IReadOnlyCollection<OrtValue> inputValues, IReadOnlyCollection<string> outputNames,
            IReadOnlyCollection<OrtValue> outputValues)
        {
            IntPtr[] outs = outputValues.Select(value => value.Handle).ToArray();
            Api.Check(Api.Of<Api.RunAll>(9)(Handle, options.Handle, inputNames.Select(name => _names[name]).ToArray(),
                inputValues.Select(value => value.Handle).ToArray(), (UIntPtr)(uint)inputValues.Count,
                outputNames.Select(name => _names[name]).ToArray(), (UIntPtr)(uint)outs.Length, outs));
        }

        public override void Dispose()
        {
            base.Dispose();
            foreach (IntPtr name in _names.Values) Marshal.FreeHGlobal(name);
            _names.Clear();
        }
    }
}
