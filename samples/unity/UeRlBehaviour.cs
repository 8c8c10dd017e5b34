// A thin MonoBehaviour over UeRlBridge: one physics tick of Unity for each step that a trainer asks for.

using System;
using System.Globalization;
using UnityEngine;

namespace UeRl
{
    /// <summary>
    /// Derive from it, put it on one object of the scene, and give the spec and the game. It runs before other scripts,
    /// so that an action is applied before the physics tick that it is meant for.
    /// </summary>
    [DefaultExecutionOrder(-1000)]
    public abstract class UeRlBehaviour : MonoBehaviour
    {
        [SerializeField] private string host = "127.0.0.1";
        [SerializeField] private int port = 7777;
        [SerializeField] private int envs = 1;
        /// <summary>Time stands still while no action runs. Without it the game goes on in real time.</summary>
        [SerializeField] private bool lockStep = true;
        /// <summary>Heuristic() plays, in real time, and nobody is listened to; env 0's numbers are on the screen. Also
        /// -heuristic=1 on the command line.</summary>
        [SerializeField] private bool heuristic = false;
        /// <summary>Heuristic() plays, in real time, while a trainer records it: ue-rl demos record. Also -demo=1.</summary>
        [SerializeField] private bool demo = false;

        private const int PatienceMs = 50; // how long a frame waits for the trainer before it goes by without a tick
        private UeRlBridge _bridge;
        private float _timeScale;
        private bool _frozen, _fresh;
        private string _seen; // by the first agent, in heuristic mode

        public UeRlBridge Bridge { get { return _bridge; } }

        /// <summary>What the handshake says. The game in Unity must have `numEnvs` envs from then on.</summary>
        protected abstract UeRlSpec Describe(int numEnvs);

        /// <summary>The callbacks. `seed` is of env 0; of the others it is seed + env. -1: none was given.</summary>
        protected abstract UeRlGame CreateGame(int numEnvs, long seed);

        /// <summary>What does this agent do now? Writes its numbers into rows.Actions, from the keyboard or from a
        /// script.</summary>
        protected virtual void Heuristic(UeRlRows rows, int row)
        {
            throw new NotSupportedException("override Heuristic() to play");
        }

        protected virtual void OnGUI()
        {
            if (_seen != null) GUI.Label(new Rect(8, 8, Screen.width - 16, Screen.height - 16), _seen);
        }

        protected virtual void Awake()
        {
            int numEnvs = (int)Option("envs", envs);
            UeRlGame game = CreateGame(numEnvs, Option("seed", -1));
            UeRlSpec spec = Describe(numEnvs);
            bool recorded = Option("demo", demo ? 1 : 0) != 0;
            if (recorded)
            {
                spec.Features.Remove("INFO");
                spec.Features.AddRange(new[] { "DEMO", "INFO" });
            }
            _bridge = new UeRlBridge(spec, game);
            _bridge.Log = line => Debug.Log("ue_rl: " + line);
            Application.runInBackground = true; // else a window without the focus stands still
            bool played = recorded || Option("heuristic", heuristic ? 1 : 0) != 0;
            if (played)
            {
                _bridge.Heuristic = Heuristic;
                _bridge.Show = (row, text) => _seen = row == 0 ? text : _seen;
            }
            if (lockStep && !played)
            {
                QualitySettings.vSyncCount = 0;
                Application.targetFrameRate = -1;
                Time.captureDeltaTime = Time.fixedDeltaTime; // each frame is one tick, however long it really takes
            }
            _timeScale = Time.timeScale;
            int asked = (int)Option("port", port);
            _bridge.Start(asked, host);
            if (_bridge.Port > 0) Debug.Log("ue_rl: listening on " + host + ":" + _bridge.Port.ToString(CultureInfo.InvariantCulture));
        }

        protected virtual void FixedUpdate()
        {
            if (!lockStep)
            {
                _bridge.Tick();
                return;
            }
            if (_fresh)
            {
                _fresh = false; // Update has handed the actions out: this tick is theirs
                return;
            }
            _bridge.Answer();
            if (_bridge.Receive()) return;
            DateTime end = DateTime.UtcNow.AddMilliseconds(PatienceMs);
            while (DateTime.UtcNow < end)
            {
                _bridge.Wait(PatienceMs);
                if (_bridge.Receive()) return;
            }
            _frozen = true; // nobody asks: frames go by, so that a window stays alive, and the game stands still
            _timeScale = Time.timeScale;
            Time.timeScale = 0;
        }

        protected virtual void Update()
        {
            if (!lockStep || !_frozen) return;
            _bridge.Wait(PatienceMs);
            if (!_bridge.Receive()) return;
            Time.timeScale = _timeScale;
            _frozen = false;
            _fresh = true;
        }

        protected virtual void OnDestroy()
        {
            if (_bridge != null) _bridge.Dispose();
            _bridge = null;
        }

        /// <summary>-name=value, or -name value, on the command line of the player.</summary>
        private static long Option(string name, long otherwise)
        {
            string[] words = Environment.GetCommandLineArgs();
            for (int i = 0; i < words.Length; i++)
            {
                string word = words[i].TrimStart('-'), text = null;
                if (words[i].Length == word.Length) continue;
                if (word.StartsWith(name + "=", StringComparison.Ordinal)) text = word.Substring(name.Length + 1);
                else if (word == name && i + 1 < words.Length) text = words[i + 1];
                if (text == null) continue;
                long value;
                if (long.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out value)) return value;
                throw new ArgumentException("-" + name + " needs a number, not " + text);
            }
            return otherwise;
        }
    }
}
