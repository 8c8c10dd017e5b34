"""The options of a run, one table: name, type, default, what it may be, its flag's help, on --resume, which backend.

A field of TrainOptions is a row. Everything else reads it there: the flags and the help of `ue-rl train`, the keys of
a YAML file, the checks before a run begins, its config.yaml, and what a resumed run may do otherwise.
"""

# ruff: noqa: RUF009 - `option` makes a dataclass field
from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ue_rl.connections.dialling import address_of
from ue_rl.connections.launching.template import program_of
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.algorithms import BACKENDS
from ue_rl.training.kinds import (
    ADDRESS,
    CHANNEL,
    COUNT,
    DEADLINE,
    LEARNER,
    LESSONS,
    LOG_TARGETS,
    LOGS,
    MAPPING,
    NAMED,
    NORMALIZE,
    NUMBER,
    PARAMETERS,
    POSITIVE,
    RESTARTS,
    RETURN,
    SCALE,
    SECONDS,
    SEED,
    SWITCH,
    TRANSPORT,
    URLS,
    text,
)
from ue_rl.training.rows import (
    BOTH,
    CONNECTION,
    EVALUATION,
    EVERYDAY,
    FOLDER,
    GAME,
    HOSTED_HERE,
    LEARNING,
    LEAVE,
    NEW_RUN,
    ONLY,
    RAY,
    RUNNING,
    SEVERAL,
    SHOWN,
    STARTED,
    STARTED_HERE,
    UNSAID,
    OptionRow,
    option,
)

DEFAULT_ENV = "CartPole-v1"

_everyday = functools.partial(option, group=EVERYDAY)
_started = functools.partial(option, group=STARTED)
_connection = functools.partial(option, group=CONNECTION)
_passed = functools.partial(_connection, connects=True)
_folder = functools.partial(option, group=FOLDER)
_learning = functools.partial(option, group=LEARNING)
_game = functools.partial(option, group=GAME)
_evaluation = functools.partial(option, rllib=LEAVE, group=EVALUATION)
_shown = functools.partial(option, group=SHOWN)
_rllib = functools.partial(option, None, rllib=ONLY, group=RAY)
_sb3 = functools.partial(_learning, rllib=LEAVE)
_in_files = functools.partial(option, rllib=LEAVE)  # without a flag
_named = functools.partial(_learning, None, NAMED, multiple=True, starts=True)
_several = functools.partial(option, None, POSITIVE, rllib=LEAVE, resume=UNSAID, group=SEVERAL)
_demonstrations = functools.partial(_sb3, None, text("FOLDER"), resume=NEW_RUN)


@dataclass
class TrainOptions:
    """One run, resolved. The field names are the YAML keys and, with dashes, the flags."""

    backend: str = option(
        "sb3",
        text("NAME"),
        "The library that learns: sb3 (Stable-Baselines3) or rllib (Ray RLlib).",
        resume="leave it out: the run goes on with {before}; with another backend begin a new run",
        group=RAY,
        complete=tuple(BACKENDS),
    )
    algo: str = _everyday(
        "ppo",
        text("NAME"),
        "ppo, a2c, sac, td3, ddpg, dqn; with sb3-contrib trpo, tqc, qrdqn, recurrentppo, maskable_ppo; "
        "with RLlib ppo, appo, impala, sac, dqn.",
        resume="leave it out: the saved networks are those of {before}; for another algorithm begin a new run",
        complete=tuple(dict.fromkeys(name for names in BACKENDS.values() for name in names)),
    )
    env: str | None = _everyday(
        None,
        text("ID"),
        f"Train on this Gymnasium env instead of a game.  [default: {DEFAULT_ENV}]",
        resume=NEW_RUN,
        starts=True,
    )
    env_kwargs: dict[str, Any] = _started(
        {},
        MAPPING,
        "Arguments for --env, as a JSON object.",
        engines=HOSTED_HERE,
        elsewhere="give --env, or leave it out",
        starts=True,
    )
    engine: str | None = _everyday(
        None,
        text("COMMAND"),
        "Start the game by this: './Game.sh --port {port} --envs {num_envs}', or godot:PATH, unity:PATH, unreal:PATH, "
        "unreal-editor:PATH.",
        starts=True,
        complete="engine",
    )
    num_engines: int = _started(
        1,
        POSITIVE,
        "How many engines to start; each is a process.",
        engines=STARTED_HERE,
        elsewhere="for engines that run already give the URL of each",
    )
    num_envs: int = _everyday(
        8,
        POSITIVE,
        "How many envs each started engine has.",
        engines=STARTED_HERE,
        elsewhere="an engine that runs has its own number; of grpc:// the address says it: ?num-envs=64",
        tolerated=True,
    )
    num_env_runners: int | None = _rllib(COUNT, "Processes that play; each has --num-envs envs.  [default: 2]")
    ray_address: str | None = _rllib(
        text("ADDRESS"), "A running Ray cluster: auto, or HOST:PORT.  [default: start one here]", starts=True
    )
    num_learners: int | None = _rllib(COUNT, "Processes that learn; 0: this one.  [default: 0]")
    num_gpus_per_learner: float | None = _rllib(NUMBER, "GPUs of each learner.  [default: 0]")
    start_timeout: float = _started(
        120.0,
        DEADLINE,
        "How long an engine may take to start.",
        engines=STARTED_HERE,
        elsewhere="it is for engines that are started here; --wait says how long to wait until one listens",
        tolerated=True,
    )
    restarts: str = _started(
        "10/60s",
        RESTARTS,
        "How often a lost engine is started again, within how long of play; 0: never.",
        engines=STARTED_HERE,
        elsewhere="a lost engine that was running already ends the run, unless --reconnect 60s is given",
        tolerated=True,
    )
    url: str | list[str] | None = option(None, URLS)
    reconnect: float = _connection(
        0.0,
        SECONDS,
        "How long a lost running engine is dialled again; 0: its loss ends the run.",
        engines=RUNNING,
        elsewhere="leave it out: --restarts says how often a lost engine is started again",
    )
    wait: float = _connection(
        0.0,
        SECONDS,
        "How long to wait until the engine listens.",
        engines=RUNNING,
        elsewhere="say --start-timeout",
    )
    transport: str = _passed(
        "auto",
        TRANSPORT,
        "The carrier, where the URL says none; auto: shared memory if both share a machine, else TCP.",
    )
    channel: str = _passed(
        "auto",
        CHANNEL,
        "One socket for all envs, or one for each, where the URL says nothing.",
        rllib="leave it out: the wiring is found out",
    )
    nul_terminated: bool | None = _passed(
        None,
        SWITCH,
        "Send a NUL byte after each line.  [default: only to the Unreal plugin's SINGLE and RLBASE]",
        rllib=LEAVE,
    )
    token_file: str | None = _passed(
        None,
        text("FILE"),
        "A secret that the engines have, too (docs/security.md).",
        rllib="put it into the URL: 'tcp://HOST:PORT?token-file=FILE'",
    )
    timeout: float = _passed(30.0, DEADLINE, "How long a step may take.")
    timesteps: int = _everyday(100_000, POSITIVE, "env-steps of the whole run, over all envs.")
    seed: int | None = _learning(None, SEED, "Same seed, same run, where the engine takes seeds.", resume=NEW_RUN)
    policy: str = _learning(
        "auto",
        text("CLASS"),
        "Stable-Baselines3's policy class.  [default: by the observation space]",
        resume="leave it out: the saved networks have their shape; for another one begin a new run",
        rllib="leave it out; --net-arch and --set model_config={..} say what the networks are",
    )
    hyperparameters: dict[str, Any] = _learning({}, MAPPING, resume=UNSAID, merged=True)
    normalize: bool | dict[str, Any] = _sb3(
        False, NORMALIZE, "Normalise observations and rewards (VecNormalize); saved with the model.", resume=NEW_RUN
    )
    overlap: bool = _sb3(
        False,
        SWITCH,
        "Act or learn while the engine ticks: the envs step in two halves (ppo, a2c ..), or gradient steps are taken "
        "meanwhile (sac, dqn ..).",
        resume=NEW_RUN,
    )
    learner: str = _sb3(
        "auto",
        LEARNER,
        "What computes rollouts and updates: torch; numpy, faster for ppo, a2c and maskable_ppo with small networks on "
        "the CPU; auto: numpy where it can and is.",
    )
    frame_stack: int | None = _sb3(
        None, POSITIVE, "Let the policy see the last so many observations (VecFrameStack).", resume=NEW_RUN
    )
    env_wrapper: Any = _named(
        "Put this around the env: a gymnasium.Wrapper around each of --env, a VecEnvWrapper around all (sb3). With "
        "arguments as JSON: {MODULE:CLASS: {..}}.",
        resume=NEW_RUN,
        rllib=BOTH,
    )
    callback: Any = _named("A callback of Stable-Baselines3's.", rllib=LEAVE)
    max_episode_steps: int | None = _game(
        None,
        POSITIVE,
        "Cut episodes after this many steps.",
        rllib="let the engine cut its episodes (TRUNC), or train with --backend sb3",
    )
    params: dict[str, Any] = _game(
        {},
        PARAMETERS,
        "Set a parameter of the game; NAME=LOW..HIGH draws it anew for each episode.",
        flag="param",
        multiple=True,
        merged=True,
    )
    time_scale: float | None = _game(None, SCALE, "How fast the game runs; 1 is real time.")
    curriculum: Any = _in_files(None, LESSONS)
    her: dict[str, Any] | None = _in_files(None, MAPPING, resume=NEW_RUN)
    group: str | None = _game(
        None,
        text("NAME"),
        "The group of agents that learns, where the engine has several.",
        resume=NEW_RUN,
        rllib=LEAVE,
    )
    others: dict[str, Any] = _in_files({}, MAPPING, merged=True)
    self_play: dict[str, Any] | None = _in_files(None, MAPPING, resume=NEW_RUN)
    device: str = _learning(
        "auto",
        text("DEVICE"),
        "Where torch computes: cpu, cuda or auto: a GPU if there is one, but a CPU for PPO and A2C with an MlpPolicy.",
        rllib="leave it out: --num-gpus-per-learner puts the learner on a GPU, env runners compute on CPUs",
        complete=("auto", "cpu", "cuda"),
    )
    threads: int | None = _learning(None, POSITIVE, "How many threads torch uses.  [default: half the cores]")
    log_dir: str = _folder("runs", text("FOLDER"), "The folder that holds all runs.", resume=UNSAID)
    run_id: str | None = _everyday(
        None,
        text("NAME"),
        "The name of the run and of its folder.  [default: such as ppo-CartPole-v1-1]",
        resume=UNSAID,
        complete="run",
    )
    log_to: str | list[str] = _folder(
        "tensorboard",
        LOGS,
        f"Where the numbers go beside progress.csv: {', '.join(LOG_TARGETS)}, several with commas, or none.",
    )
    init_from: str | None = _sb3(
        None,
        text("PATH"),
        "Start with the weights of this run, checkpoint or model.zip.",
        resume="leave it out: the run goes on with its own weights",
        complete="run or file",
    )
    vecnormalize: str | None = _sb3(
        None,
        text("FILE|none"),
        "The statistics of VecNormalize for --init-from; none: it has none.  [default: those beside its model]",
        resume="leave it out: the run goes on with its own statistics",
    )
    bc: str | None = _demonstrations(
        "Behaviour cloning: first learn to act as these demonstrations, a Minari dataset, do."
    )
    prefill: str | None = _demonstrations("Demonstrations that the replay buffer begins with (sac, td3, dqn ..).")
    gail: str | None = _demonstrations(
        "Earn rewards for acting as these demonstrations do, instead of the game's (ppo, a2c ..)."
    )
    rnd: float = _sb3(
        0.0,
        NUMBER,
        "Weight of a reward for what was never seen, beside the game's (ppo, a2c ..); 0: none.",
        resume=NEW_RUN,
    )
    # a checkpoint with its ONNX file takes 0.3 s, which is a tenth of 50 000 quick steps
    save_freq: int = _folder(0, COUNT, "env-steps between checkpoints; 0: only --save-interval counts.")
    save_interval: float = _folder(300.0, SECONDS, "How long between checkpoints; 0: only --save-freq counts.")
    keep: int = _folder(3, POSITIVE, "How many checkpoints are kept.")
    save_replay_buffer: bool = _folder(True, SWITCH, "Keep the replay buffer in the newest checkpoint.")
    eval_freq: int = _evaluation(
        0, COUNT, "env-steps between two evaluations, in an engine of their own; best_model.zip is the best. 0: none."
    )
    eval_episodes: int | None = _evaluation(
        None,
        COUNT,
        "Episodes of each evaluation, and of the one at the end.  [default: 20 with --env or --eval-freq, else 0]",
        rllib=BOTH,
    )
    eval_url: str | list[str] | None = _evaluation(
        None, URLS, "The engine for --eval-freq that runs already.  [default: one is started, as those that learn are]"
    )
    stop_at_return: float | None = _evaluation(
        None, RETURN, "End when an evaluation reaches this mean return, or the last 100 episodes where none is made."
    )
    video_freq: int = _evaluation(
        0, COUNT, "env-steps between two films of env 0, in videos/ (FEATURES=RENDER); 0: none. Needs Pillow."
    )
    seeds: int | None = _several(
        "Train so many times, each with another seed from --seed on, in one folder with a table and a plot."
    )
    jobs: int | None = _several("How many of --seeds run side by side.  [default: half the cores]")
    export: bool = _folder(True, SWITCH, "Write model.onnx at the end and with each checkpoint.")
    trace: str | None = _folder(
        None,
        text("FILE"),
        "Record every message of the engines into this file; ue-rl replay plays it.",
        rllib=LEAVE,
        starts=True,
    )
    metrics: str | None = _shown(
        None, ADDRESS, "Serve metrics for Prometheus on 127.0.0.1:PORT, or on HOST:PORT.", rllib=LEAVE
    )
    trace_size: int = _folder(
        1000, POSITIVE, "Megabytes that the trace may take; beyond it the oldest go.", rllib=LEAVE
    )
    verbose: int = _shown(
        0,
        COUNT,
        "Stable-Baselines3's verbosity: 0, 1 or 2.",
        rllib="leave it out: run.log and the tables in the run's folder have everything",
    )

    def __post_init__(self) -> None:
        for name, row in ROWS.items():
            value = getattr(self, name)
            if row.kind.read is not None and value is not None:
                try:
                    setattr(self, name, row.kind.read(value))
                except ValueError as error:  # check_options says what it must be
                    if isinstance(error, ConfigurationError):
                        raise

    @property
    def embedded(self) -> bool:
        """Does the run host a Gymnasium env in engines of its own?"""
        return self.engine_kind == "env"

    @property
    def engine_kind(self) -> str:
        """`url`, `engine` or `env`: by which option the engines are named; without any a Gymnasium env is hosted."""
        if self.url is not None:
            return "url"
        if self.engine is not None:
            return "engine"
        return "env"

    @property
    def evaluated(self) -> int:
        """Episodes of an evaluation; 0: there is none."""
        if self.eval_episodes is not None:
            return self.eval_episodes
        if self.embedded or self.eval_freq:
            return 20
        return 0

    @property
    def urls(self) -> list[str]:
        """The addresses of running engines, as ue_rl.connect takes them; [] where engines are started here."""
        if self.url is None:
            return []
        if isinstance(self.url, str):
            return [self.url]
        return list(self.url)

    @property
    def run_name(self) -> str:
        """What a run's folder is called, before its number, where it has no `run_id`: no separators."""
        backend = ""
        if self.backend != "sb3":
            backend = f"{self.backend}-"
        return re.sub(r"[^\w.+@-]+", "-", f"{backend}{self.algo}-{self.task}")

    @property
    def task(self) -> str:
        """A name for the env."""
        if self.engine is not None:
            return program_of(self.engine)
        if self.embedded:
            return self.env or DEFAULT_ENV
        first, *others = self.urls
        address = address_of(first)
        name = address.place.replace("/", "-").strip("-") or address.scheme
        if others:
            return f"{name}-and-{len(others)}-more"
        return name

    def as_yaml(self) -> str:
        """The whole of it as a YAML file that `--config` reads back."""
        import yaml  # who only opens engines as a run does needs none

        given = plain(asdict(self))
        # libyaml, where PyYAML was built with it, takes an eighth of the time: each checkpoint has a copy.
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        try:
            return yaml.dump(given, Dumper=dumper, sort_keys=False)
        except UnicodeEncodeError:  # a path whose bytes are no UTF-8, which libyaml cannot escape
            return yaml.safe_dump(given, sort_keys=False)


ROWS: dict[str, OptionRow] = {each.name: each.metadata["row"] for each in fields(TrainOptions)}
DEFAULTS: dict[str, Any] = vars(TrainOptions())
CONNECTS = [name for name, row in ROWS.items() if row.connects]


def plain(value: Any) -> Any:
    """Tuples, which a script may give, as lists: YAML has no others."""
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
