// Runs a policy that ue_rl exported, with the NuGet package Microsoft.ML.OnnxRuntime (1.17 or later). docs/deploy.md.
// C# 7 or later, netstandard 2.1.
using System;
using System.IO;
using System.Linq;
using Microsoft.ML.OnnxRuntime;

namespace UeRl
{
    /// <summary>What is wrong comes as an exception that says it. One object may be used by several threads.</summary>
    public sealed class OnnxPolicy : IDisposable
    {
        private static readonly string[] Inputs = { "obs" }, Masked = { "obs", "action_masks" }, Outputs = { "actions" };
        private readonly InferenceSession _session;
        private readonly RunOptions _run = new RunOptions();
        private readonly long[] _shape; // [-1, obs]; images [-1, height, width, channels]
        private readonly int _obs, _act;
        private readonly bool _needsMasks;

        /// <summary>Flags of one row of masks, one for each choice; 0: the model takes none.</summary>
        public int MaskSize { get; }

        /// <summary>JSON: spaces, names of the numbers, algorithm, normalisation, env steps of training.</summary>
        public string Description { get; }

        // onnxruntime 1.29 and later reports machine and model to its maker, unless this is set before it starts. .NET
        // hides what is set here from C on Unix: there the call stops all reports but the first.
        static OnnxPolicy()
        {
            if (Environment.GetEnvironmentVariable("ORT_DISABLE_TELEMETRY") != null)
                return;
            Environment.SetEnvironmentVariable("ORT_DISABLE_TELEMETRY", "1");
            OrtEnv.Instance().DisableTelemetryEvents();
        }

        /// <param name="obs">Numbers of one observation, as the game has them.</param>
        /// <param name="act">Numbers of one action.</param>
        public OnnxPolicy(string file, int obs, int act)
        {
            (_obs, _act) = (obs, act);
            using (var options = new SessionOptions { IntraOpNumThreads = 1 }) // the fastest for nets of this size
                _session = new InferenceSession(file, options);
            try
            {
                if (!_session.ModelMetadata.CustomMetadataMap.TryGetValue("ue_rl", out string text))
                    throw new InvalidDataException("the model has no description: export it with ue_rl");
                if (!text.Contains("\"format\": 1"))
                    throw new InvalidDataException("the model's description has another format than 1: it is of a "
                        + "later ue_rl");
                Description = text;
                var inputs = string.Join(", ", _session.InputMetadata.Keys);
                _needsMasks = inputs == "obs, action_masks";
                if (inputs != "obs" && !_needsMasks)
                    throw new InvalidDataException("the model's inputs are " + inputs + ", not obs alone: export a "
                        + "Dict observation with flat_input=True; a recurrent model needs the policy server");
                if (_needsMasks)
                    MaskSize = _session.InputMetadata["action_masks"].Dimensions.Last();
                else if (_session.OverridableInitializerMetadata.TryGetValue("action_masks", out NodeMetadata flags))
                    MaskSize = flags.Dimensions.Last();
                _shape = _session.InputMetadata["obs"].Dimensions.Select(n => (long)n).ToArray();
                long has = _shape.Skip(1).Aggregate(1L, (a, b) => a * b);
                long gives = _session.OutputMetadata["actions"].Dimensions.Last();
                if (has != obs || gives != act)
                    throw new InvalidDataException("the model has " + has + " observation and " + gives
                        + " action numbers, the game " + obs + " and " + act);
            }
            catch
            {
                Dispose();
                throw;
            }
        }

        /// <summary>The actions [n * act] for observations [n * obs]: one row per agent.</summary>
        /// <param name="masks">[n * MaskSize], 1 = legal, of a model that was trained with masks; null: it takes none,
        /// or was exported with `--masks optional` and every choice is legal.</param>
        public void Act(float[] observations, float[] actions, float[] masks = null)
        {
            long n = observations.Length / _obs;
            int bad = Array.FindIndex(observations, x => float.IsNaN(x) || float.IsInfinity(x));
            if (bad >= 0) // an argmax would make an action of it
                throw new ArgumentException("the observation of row " + bad / _obs + " holds NaN or infinity");
            if (observations.Length != n * _obs || actions.Length != n * _act)
                throw new ArgumentException(observations.Length + " observation and " + actions.Length
                    + " action numbers are not rows of " + _obs + " and " + _act);
            if (masks == null && _needsMasks)
                throw new ArgumentException("the model must be told which choices are legal: give masks of " + MaskSize
                    + " flags a row, 1 = legal");
            if (masks != null && MaskSize == 0)
                throw new ArgumentException("the model takes no action masks: leave them out");
            if (masks != null && masks.Length != n * MaskSize)
                throw new ArgumentException(masks.Length + " flags are not " + n + " rows of " + MaskSize);
            var shape = (long[])_shape.Clone();
            shape[0] = n;
            using (var input = OrtValue.CreateTensorValueFromMemory(observations, shape))
            using (var output = OrtValue.CreateTensorValueFromMemory(actions, new[] { n, _act }))
            {
                if (masks == null)
                {
                    _session.Run(_run, Inputs, new[] { input }, Outputs, new[] { output });
                    return;
                }
                using (var flags = OrtValue.CreateTensorValueFromMemory(masks, new[] { n, (long)MaskSize }))
                    _session.Run(_run, Masked, new[] { input, flags }, Outputs, new[] { output });
            }
        }

        public void Dispose()
        {
            _run.Dispose();
            _session.Dispose();
        }
    }
}
