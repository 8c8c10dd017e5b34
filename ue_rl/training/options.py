"""The options of a run, one table: name, type, default, what it may be, its flag's help, on --resume, which backend.

A field of TrainOptions is a row. Everything else reads it there: the flags and the help of `ue-rl train`, the keys of
a YAML file, the checks before a run begins, its config.yaml, and what a resumed run may do otherwise.
"""

# ruff: noqa: RUF009 - `option` makes a dataclass field
from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

import yaml

ALGORITHMS = {
    **dict.fromkeys(("ppo", "a2c", "sac", "td3", "ddpg", "dqn"), "stable_baselines3"),
    **dict.fromkeys(("trpo", "tqc", "qrdqn", "recurrentppo", "maskable_ppo"), "sb3_contrib"),
}  # the module that each is imported from
CLASS_NAMES = {"qrdqn": "QRDQN", "recurrentppo": "RecurrentPPO", "maskable_ppo": "MaskablePPO"}
OFF_POLICY = ("sac", "td3", "ddpg", "dqn", "tqc", "qrdqn")
RLLIB_ALGORITHMS = ("ppo", "appo", "impala", "sac", "dqn")
BACKENDS = {"sb3": tuple(ALGORITHMS), "rllib": RLLIB_ALGORITHMS}
DEFAULT_ENV = "CartPole-v1"


class Kind(NamedTuple):
    """What the value of an option may be.

    Attributes:
        words: what is allowed; fits: is it that?
        flag: what click reads one word as: a type, or a tuple of choices.
    """

    words: str
    fits: Callable[[Any], bool]
    flag: Any = str


def _whole(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return _text(value) or (isinstance(value, (list, tuple)) and bool(value) and all(map(_text, value)))


def _one_of(*words: str) -> Kind:
    return Kind(", ".join(words), lambda value: value in words, words)


POSITIVE = Kind("a positive integer", _whole(1), int)
COUNT = Kind("an integer from 0", _whole(0), int)
SEED = Kind("an integer from 0 to 2**32 - 1", _whole(0, 2**32 - 1), int)
PORT = Kind("an integer from 1 to 65535", _whole(1, 65535), int)
NUMBER = Kind("a number from 0", _number, float)
DEADLINE = Kind("a number of seconds above 0", lambda value: _number(value) and value > 0, float)
SECONDS = Kind("a number of seconds from 0", _number, float)
MINUTES = Kind("a number of minutes from 0", _number, float)
SWITCH = Kind("true or false", lambda value: isinstance(value, bool), bool)
TRANSPORT = _one_of("auto", "tcp", "shm")
CHANNEL = _one_of("auto", "shared", "per_env")
TEXT = Kind("text", _text)
TEXTS = Kind("an address, or a list of them", _texts)
MAPPING = Kind("a mapping, {NAME: VALUE}", lambda value: isinstance(value, Mapping))
LESSONS = Kind("lessons", lambda value: True)  # parse_curriculum says what is wrong
SCALE = Kind("a positive number, of which 1 is real time", lambda value: _number(value) and value > 0, float)

# What --resume does with an option, beside refusing another value with a cure.
APPLIED = "applied, and said"
UNSAID = "where the run is, or compared part by part"
NEW_RUN = "leave it out, or begin a new run with the weights of this one: --init-from {run}"

# With RLlib, beside what to do instead of an option that it does not have.
BOTH, ONLY = "", "Stable-Baselines3 does not have it"
_SB3 = "train with --backend sb3"
_LEAVE = f"leave it out, or {_SB3}"


class Row(NamedTuple):
    """What the table says of an option beside its name, type and default.

    Attributes:
        kind: what it may be; None, too, where that is the default.
        help: of its flag; "": it stands in YAML files only.
        resume: APPLIED, UNSAID, or the cure with which another value is refused.
        rllib: BOTH backends have it, RLlib ONLY, or what to do instead with RLlib.
        flag: its name, where that is another one. metavar: of its value. multiple: it may be given several times.
    """

    kind: Kind
    help: str = ""
    resume: str = APPLIED
    rllib: str = BOTH
    flag: str = ""
    metavar: str | None = None
    multiple: bool = False


def option(default: Any, kind: Kind, help: str = "", **more: Any) -> Any:
    """A field of TrainOptions; `more` as Row has it."""
    metadata = {"row": Row(kind, help, **more)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class TrainOptions:
    """One run, resolved. The field names are the YAML keys and, with dashes, the flags."""

    backend: str = option(
        "sb3",
        TEXT,
        "Who learns: sb3 (Stable-Baselines3), or rllib (Ray; see docs/rllib.md).",
        resume="leave it out: the run goes on with {before}; with another backend begin a new run",
    )
    algo: str = option(
        "ppo",
        TEXT,
        "ppo, a2c, sac, td3, ddpg, dqn; sb3-contrib: trpo, tqc, qrdqn, recurrentppo, maskable_ppo; "
        "rllib: ppo, appo, impala, sac, dqn.",
        resume="leave it out: the saved networks are those of {before}; for another algorithm begin a new run",
    )
    env: str | None = option(
        None, TEXT, f"Gymnasium id for the embedded engine.  [default: {DEFAULT_ENV}]", resume=NEW_RUN
    )
    env_kwargs: dict[str, Any] = option({}, MAPPING, "JSON object for gymnasium.make.")
    engine: str | None = option(
        None,
        TEXT,
        "Start engines by this: './Game.sh --port {port} --envs {num_envs}', or a preset such as "
        "godot:PATH, unity:PATH, unreal:PATH, unreal-editor:PATH.",
        metavar="COMMAND",
    )
    num_engines: int = option(1, POSITIVE, "How many are started, each a process of its own.")
    num_envs: int = option(8, POSITIVE, "Envs of each engine that is started.")
    num_env_runners: int | None = option(
        None, COUNT, "rllib: processes that play; --num-envs is of each.  [default: 2]", rllib=ONLY
    )
    ray_address: str | None = option(
        None, TEXT, "rllib: a cluster that runs already: auto, or HOST:PORT.  [default: start one here]", rllib=ONLY
    )
    num_learners: int | None = option(
        None, COUNT, "rllib: processes that learn; 0: this one.  [default: 0]", rllib=ONLY
    )
    num_gpus_per_learner: float | None = option(None, NUMBER, "rllib: GPUs of each of them.  [default: 0]", rllib=ONLY)
    start_timeout: float = option(120.0, DEADLINE, "Seconds that an engine may take to start.")
    max_restarts: int = option(10, COUNT, "A lost engine is started again, so often ..")
    restart_window: float = option(60.0, DEADLINE, ".. within this many seconds.")
    host: str | list[str] | None = option(
        None,
        TEXTS,
        "Connect to a running engine instead: a name, an address, NAME:PORT, or shm://NAME; once for each engine.",
        metavar="HOST",
        multiple=True,
    )
    port: int | None = option(None, PORT, "Its port.  [default: 7777]")
    reconnect: float = option(0.0, SECONDS, "Dial a running engine again, for so many seconds.")
    wait: float = option(0.0, SECONDS, "Keep trying to connect this many seconds.")
    transport: str = option("auto", TRANSPORT, "auto: shared memory where the engine offers it and both can.")
    channel: str = option("auto", CHANNEL, "The wiring.", rllib="leave it out: the wiring is found out")
    nul_terminated: bool | None = option(
        None, SWITCH, "A NUL byte behind each line.  [default: to the Unreal plugin's SINGLE and RLBASE]", rllib=_LEAVE
    )
    timeout: float = option(30.0, DEADLINE, "Seconds a step may take.")
    timesteps: int = option(100_000, POSITIVE, "env-steps in all.")
    seed: int | None = option(None, SEED, "Same seed, same run (where the engine takes seeds).", resume=NEW_RUN)
    policy: str = option(
        "auto",
        TEXT,
        "SB3's policy class.  [default: by the observation space]",
        resume="leave it out: the saved networks have their shape; for another one begin a new run",
        rllib="leave it out; --net-arch and --set model_config={..} say what the networks are",
    )
    hyperparameters: dict[str, Any] = option({}, MAPPING, resume=UNSAID)
    normalize: bool = option(False, SWITCH, "VecNormalize, saved with the model.", resume=NEW_RUN, rllib=_LEAVE)
    max_episode_steps: int | None = option(
        None,
        POSITIVE,
        "Cut episodes after this many steps.",
        rllib=f"let the engine cut its episodes (TRUNC), or {_SB3}",
    )
    params: dict[str, Any] = option(
        {},
        MAPPING,
        "A parameter of the game, or NAME=LOW..HIGH: drawn anew for each episode.",
        flag="param",
        metavar="NAME=VALUE",
        multiple=True,
    )
    time_scale: float | None = option(None, SCALE, "How fast the game runs, 1 is real time.")
    curriculum: Any = option(None, LESSONS, rllib=_LEAVE)
    her: dict[str, Any] | None = option(None, MAPPING, resume=NEW_RUN, rllib=_LEAVE)
    group: str | None = option(
        None, TEXT, "Of an engine with several groups of agents, the one that learns.", resume=NEW_RUN, rllib=_LEAVE
    )
    others: dict[str, Any] = option({}, MAPPING, rllib=_LEAVE)
    self_play: dict[str, Any] | None = option(None, MAPPING, resume=NEW_RUN, rllib=_LEAVE)
    device: str = option(
        "auto",
        TEXT,
        "cpu, cuda or auto.",
        rllib="leave it out: --num-gpus-per-learner puts the learner on a GPU, env runners compute on CPUs",
    )
    threads: int | None = option(None, POSITIVE, "torch's threads.  [default: half the cores]")
    log_dir: str = option("runs", TEXT, "Where runs are kept.", resume=UNSAID)
    run_id: str | None = option(None, TEXT, "The run's folder.  [default: ALGO-ENV-N]", resume=UNSAID)
    init_from: str | None = option(
        None,
        TEXT,
        "Start with the weights of this model.zip.",
        resume="leave it out: the run goes on with its own weights",
        rllib=_LEAVE,
    )
    save_freq: int = option(50_000, POSITIVE, "env-steps between checkpoints.")
    save_minutes: float = option(5.0, MINUTES, "Minutes between checkpoints; 0: --save-freq alone.")
    keep: int = option(3, POSITIVE, "How many checkpoints are kept.")
    save_replay_buffer: bool = option(True, SWITCH, "The newest checkpoint holds it, as far as it is filled.")
    eval_episodes: int | None = option(
        None, COUNT, "Evaluate on this many episodes at the end.  [default: 20 embedded, else 0]"
    )
    export: bool = option(True, SWITCH, "Write model.onnx, at the end and with each checkpoint.")
    verbose: int = option(
        0, COUNT, "SB3's verbosity.", rllib="leave it out: run.log and the tables in the run's folder have everything"
    )

    @property
    def embedded(self) -> bool:
        """Does the run host a Gymnasium env in engines of its own?"""
        return self.host is None and self.port is None and self.engine is None

    @property
    def hosts(self) -> list[str]:
        """The addresses of running engines; [] where engines are started here."""
        if self.host is None:
            return [] if self.port is None else ["127.0.0.1"]
        return [self.host] if isinstance(self.host, str) else list(self.host)

    @property
    def run_name(self) -> str:
        """What a run's folder is called, before its number, where it has no `run_id`: no separators."""
        backend = "" if self.backend == "sb3" else f"{self.backend}-"
        return re.sub(r"[^\w.+@-]+", "-", f"{backend}{self.algo}-{self.task}")

    @property
    def task(self) -> str:
        """A name for the env."""
        if self.engine is not None:
            return program_of(self.engine)
        if self.embedded:
            return self.env or DEFAULT_ENV
        first, *others = self.hosts
        if first.startswith("shm://"):
            name = first.removeprefix("shm://").replace("/", "-").strip("-") or "shm"
        else:
            name = first if others or re.search(r"[^:]:\d+$", first) else f"{first}-{self.port or 7777}"
        return f"{name}-and-{len(others)}-more" if others else name

    def as_yaml(self) -> str:
        """The whole of it as a YAML file that `--config` reads back."""
        return yaml.safe_dump(plain(asdict(self)), sort_keys=False)


ROWS: dict[str, Row] = {each.name: each.metadata["row"] for each in fields(TrainOptions)}
DEFAULTS: dict[str, Any] = vars(TrainOptions())


def program_of(engine: str) -> str:
    """A short name of an engine's command, or of a preset's PATH: "walker" of "godot:/games/walker"."""
    kind, colon, path = engine.partition(":")
    words = [path] if colon and re.fullmatch(r"[a-z][a-z-]+", kind) else engine.split()
    scripts = [word for word in words[1:] if not word.startswith("-")]
    if re.fullmatch(r"(python|py|bash|sh|node|wine|xvfb-run)[\d.]*", PureWindowsPath(words[0]).stem) and scripts:
        words = scripts
    return PureWindowsPath(words[0].strip("'\"")).stem or "engine"


def plain(value: Any) -> Any:
    """Tuples, which a script may give, as lists: YAML has no others."""
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value
