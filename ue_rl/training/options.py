"""What a training run is made of: defaults, a YAML file, command-line flags, in rising order of precedence.

Two kinds of YAML are read: our own (the flags' names, plus `hyperparameters:`), and the file of the Unreal plugin's own
trainer (`model:`, `total_timesteps:`, `common_parameters:`, `on_policy:` ..). Unknown keys are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from ue_rl.agents.selfplay_options import SelfPlayOptions
from ue_rl.calls.parameters import as_ranges
from ue_rl.errors import ConfigurationError, nearest
from ue_rl.system.files import require_file
from ue_rl.training.backends import check_backend, rllib_arguments
from ue_rl.training.checks import check_options
from ue_rl.training.lessons import parse_curriculum
from ue_rl.training.settings import in_one_line

ALGORITHMS = {
    **dict.fromkeys(("ppo", "a2c", "sac", "td3", "ddpg", "dqn"), "stable_baselines3"),
    **dict.fromkeys(("trpo", "tqc", "qrdqn", "recurrentppo", "maskable_ppo"), "sb3_contrib"),
}  # the module that each is imported from
CLASS_NAMES = {"qrdqn": "QRDQN", "recurrentppo": "RecurrentPPO", "maskable_ppo": "MaskablePPO"}
OFF_POLICY = ("sac", "td3", "ddpg", "dqn", "tqc", "qrdqn")
GOAL_STRATEGIES = ("future", "final", "episode")
DEFAULT_ENV = "CartPole-v1"
FORMAT = 1  # of config.yaml

# Hyperparameters that are known to solve a task; what the user gives wins.
# "lin_x" falls linearly from x to 0 over the run.
TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "CartPole-v1"): {
        "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
}  # fmt: skip


@dataclass
class TrainOptions:
    """One run, resolved. The field names are the YAML keys and, with dashes, the flags."""

    backend: str = "sb3"
    algo: str = "ppo"
    policy: str = "auto"
    timesteps: int = 100_000
    seed: int | None = None
    host: str | list[str] | None = None
    port: int | None = None
    engine: str | None = None
    num_engines: int = 1
    start_timeout: float = 120.0
    max_restarts: int = 10
    restart_window: float = 60.0
    reconnect: float = 0.0
    transport: str = "auto"
    channel: str = "auto"
    nul_terminated: bool | None = None
    timeout: float = 30.0
    wait: float = 0.0
    env: str | None = None
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    num_envs: int = 8
    num_env_runners: int | None = None
    ray_address: str | None = None
    num_learners: int | None = None
    num_gpus_per_learner: float | None = None
    max_episode_steps: int | None = None
    normalize: bool = False
    device: str = "auto"
    threads: int | None = None
    log_dir: str = "runs"
    run_id: str | None = None
    save_freq: int = 50_000
    save_minutes: float = 5.0
    keep: int = 3
    save_replay_buffer: bool = True
    export: bool = True
    eval_episodes: int | None = None
    init_from: str | None = None
    verbose: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    time_scale: float | None = None
    curriculum: Any = None
    her: dict[str, Any] | None = None
    group: str | None = None
    others: dict[str, Any] = field(default_factory=dict)
    self_play: dict[str, Any] | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)

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
            name = first if others else f"{first}-{self.port or 7777}"
        return f"{name}-and-{len(others)}-more" if others else name

    def as_yaml(self) -> str:
        """The whole of it as a YAML file that `--config` reads back."""
        return yaml.safe_dump(_plain(asdict(self)), sort_keys=False)


def program_of(engine: str) -> str:
    """A short name of an engine's command, or of a preset's PATH: "walker" of "godot:/games/walker"."""
    kind, colon, path = engine.partition(":")
    words = [path] if colon and re.fullmatch(r"[a-z][a-z-]+", kind) else engine.split()
    scripts = [word for word in words[1:] if not word.startswith("-")]
    if re.fullmatch(r"(python|py|bash|sh|node|wine|xvfb-run)[\d.]*", PureWindowsPath(words[0]).stem) and scripts:
        words = scripts
    return PureWindowsPath(words[0].strip("'\"")).stem or "engine"


def _plain(value: Any) -> Any:
    """Tuples, which a script may give, as lists: YAML has no others."""
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


FIELD_NAMES = [f.name for f in fields(TrainOptions)]


def resolve(
    flags: Mapping[str, Any], config: Path | None, base: Mapping[str, Any] | None = None, *, resumed: bool = False
) -> TrainOptions:
    """Puts `flags` (None: not given) over the YAML file over `base` over the defaults.

    Args:
        resumed: the options are to find a run that is resumed, whose config, the `base`, says with which backend.

    Raises:
        ConfigurationError: an unknown key, a value of the wrong type, an algorithm that does not exist, an option of
            the other backend.
    """
    layers = [dict(base or {}), read_config(config) if config is not None else {}]
    layers.append({key: value for key, value in flags.items() if value is not None})
    _one_kind_of_engine(layers)
    merged = {name: _merged(layers, name) for name in ("hyperparameters", "params", "others")}
    values = {key: value for layer in layers for key, value in layer.items()}
    options = TrainOptions(**{**values, **merged})
    options.algo = str(options.algo).lower()
    if not resumed:
        check_backend(options, ALGORITHMS)
    check_options(options)
    tuned_for(options)  # its schedules can be read
    _check_extras(options)
    return options


_KINDS = (("env",), ("engine",), ("host", "port"))


def _one_kind_of_engine(layers: list[dict[str, Any]]) -> None:
    """Where a later layer names an engine of another kind (a running one, a command, an env), the earlier one goes."""
    for number, layer in enumerate(layers):
        given = [kind for kind in _KINDS if any(layer.get(name) is not None for name in kind)]
        if len(given) != 1:
            continue  # nothing to say, or a contradiction, which is refused later
        for before in layers[:number]:
            for kind in _KINDS:
                for name in kind if kind != given[0] else ():
                    before.pop(name, None)
            if given[0] == ("host", "port"):
                before.pop("num_engines", None)


def _merged(layers: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """A mapping that several layers have a part of: the later one wins key by key."""
    whole: dict[str, Any] = {}
    for layer in layers:
        part = layer.pop(name, None) or {}
        if not isinstance(part, Mapping):
            raise ConfigurationError("must be a mapping", field=name, expected=f"{name}: {{NAME: VALUE}}", got=part)
        whole |= part
    return whole


def _check_extras(options: TrainOptions) -> None:
    """What can be said of parameters, curriculum and HER before an engine is there."""
    as_ranges(options.params, "params")
    if options.curriculum is not None:
        parse_curriculum(options.curriculum)
    scale = options.time_scale
    if scale is not None and not (isinstance(scale, (int, float)) and 0 < scale < float("inf")):
        raise ConfigurationError("a time scale is positive", field="time_scale", expected="1 is real time", got=scale)
    if options.self_play is not None:
        if not isinstance(options.self_play, Mapping):
            raise ConfigurationError(
                "self_play is a mapping", field="self_play", expected="{save_steps: 20000}", got=options.self_play
            )
        SelfPlayOptions.of(options.self_play)
    if options.her is None:
        return
    if options.algo not in OFF_POLICY:
        raise ConfigurationError(
            "HER needs an algorithm with a replay buffer", field="her", expected=", ".join(OFF_POLICY), got=options.algo
        )
    if not isinstance(options.her, Mapping):
        raise ConfigurationError("her is a mapping", field="her", expected="{n_sampled_goal: 4}", got=options.her)
    known = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict")
    for key in options.her:
        if key not in known:
            raise ConfigurationError(
                "HER has no such argument", field=f"her.{key}", expected=", ".join(known), cure=nearest(str(key), known)
            )
    strategy = options.her.get("goal_selection_strategy", "future")
    if strategy not in GOAL_STRATEGIES:
        raise ConfigurationError(
            "no such strategy", field="her.goal_selection_strategy", expected=", ".join(GOAL_STRATEGIES), got=strategy
        )


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a YAML file in our terms.

    Raises:
        ConfigurationError: not readable, not YAML, not a mapping, of a newer version, or unknown keys.
    """
    content = read_whole_config(path)
    content.pop("format", None)
    return content


def read_whole_config(path: Path) -> dict[str, Any]:
    """As `read_config`, with the `format` that a run has written into it."""
    try:
        require_file(path)
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", field="config", got=str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text in UTF-8", field="config", got=str(error)) from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML", field="config", got=in_one_line(error)) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} is not a YAML mapping", field="config", got=type(content).__name__)
    if "model" in content or "common_parameters" in content:
        return _from_plugin(content, path)
    if content.get("format", FORMAT) != FORMAT:
        raise ConfigurationError(
            f"{path} was written by a newer version of ue_rl", field="format", expected=FORMAT, got=content["format"],
            cure="install that version",
        )  # fmt: skip
    _refuse_unknown("", content, [*FIELD_NAMES, "format"], path)
    return content


_PLUGIN_KEYS = {
    "": ["model", "model_name", "load_from_checkpoint", "total_timesteps", "checkpoint_freq", "paths",
         "common_parameters", "on_policy", "off_policy"],
    "paths": ["save_dir", "previous_model"],
    "common_parameters": ["device", "learning_rate", "gamma", "verbose", "batch_size"],
}  # fmt: skip


def _from_plugin(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The plugin's own trainer's file; its checkpoint_freq counted vec-steps, ours counts env-steps."""
    names = ("paths", "common_parameters", "on_policy", "off_policy")
    sections = {"": content, **{name: _section(content, name, path) for name in names}}
    for name, allowed in _PLUGIN_KEYS.items():
        _refuse_unknown(name, sections[name], allowed, path)
    algo = str(content.get("model", "ppo")).lower()
    common = sections["common_parameters"]
    taken = ("learning_rate", "gamma") if algo == "a2c" else ("learning_rate", "gamma", "batch_size")
    hyper = {key: common[key] for key in taken if key in common}
    kind = sections["off_policy" if algo in OFF_POLICY else "on_policy"]
    hyper |= {key: value for key, value in kind.items() if not isinstance(value, dict) and key not in ALGORITHMS}
    hyper |= _section(kind, algo, path)
    values: dict[str, Any] = {"algo": algo, "host": "127.0.0.1", "hyperparameters": hyper}
    values |= {key: common[key] for key in ("device", "verbose") if key in common}
    renamed = {"total_timesteps": "timesteps", "checkpoint_freq": "save_freq"}
    values |= {ours: content[theirs] for theirs, ours in renamed.items() if theirs in content}
    save_dir = str(sections["paths"].get("save_dir") or "")
    if save_dir:
        folder = PureWindowsPath(save_dir) if "\\" in save_dir else Path(save_dir)
        values["run_id"] = str(content.get("model_name") or folder.name)
        if Path(save_dir).is_absolute() or "\\" not in save_dir:
            values["log_dir"] = str(Path(save_dir).parent)
    if content.get("load_from_checkpoint"):
        values["init_from"] = sections["paths"].get("previous_model")
    return values


def _section(content: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = content.get(name) or {}
    if not isinstance(section, dict):
        raise ConfigurationError(f"{path.name} is malformed", field=name, expected="a YAML mapping", got=section)
    return section


def _refuse_unknown(section: str, given: dict[str, Any], allowed: list[str], path: Path) -> None:
    for key in given:
        if key not in allowed:
            raise ConfigurationError(
                f"{path.name} has an unknown key", field=f"{section}.{key}" if section else str(key),
                expected=", ".join(allowed), cure=nearest(str(key), allowed),
            )  # fmt: skip


def schedule(value: Any) -> Any:
    """`"lin_0.001"` as a function of the remaining part of the run; anything else as it is.

    Raises:
        ConfigurationError: no number behind lin_.
    """
    if isinstance(value, str) and value.startswith("lin_"):
        try:
            return LinearSchedule(float(value[4:]))
        except ValueError:
            raise ConfigurationError(
                "not a schedule", field="hyperparameters", expected="lin_0.001, which falls from 0.001 to 0", got=value
            ) from None
    return value


@dataclass(frozen=True)
class LinearSchedule:
    """Falls from `start` to 0 over the run; a class, so that a saved model can be loaded anywhere."""

    start: float

    def __call__(self, remaining: float) -> float:
        """`remaining` goes from 1 to 0."""
        return self.start * remaining


def tuned_for(options: TrainOptions, resolved: bool = True) -> dict[str, Any]:
    """The hyperparameters to use: known good ones for the task, under what the user gave. What is given out is the
    caller's: SB3 writes into it (A2C puts its optimizer into policy_kwargs).

    Args:
        resolved: schedules as functions, as SB3 takes them; False: as they are written ("lin_0.001").
    """
    if options.backend == "rllib":
        hosted = (options.env or DEFAULT_ENV) if options.embedded else ""
        arguments = rllib_arguments(options.algo, hosted, deepcopy(options.hyperparameters))
        for value in arguments.values():
            schedule(value)
        return arguments
    base = TUNED.get((options.algo, options.env or DEFAULT_ENV), {}) if options.embedded else {}
    given = deepcopy({**base, **options.hyperparameters})
    if "batch_size" in base and "batch_size" not in options.hyperparameters and isinstance(given["n_steps"], int):
        given["batch_size"] = _fitting(base["batch_size"], given["n_steps"] * options.num_envs * options.num_engines)
    if not resolved:
        return given
    if isinstance(given.get("train_freq"), list):  # [4, "episode"] in YAML
        given["train_freq"] = tuple(given["train_freq"])
    return {key: schedule(value) for key, value in given.items()}


def _fitting(batch_size: int, rollout: int) -> int:
    """The greatest batch size up to `batch_size` that cuts a rollout of so many steps into equal parts."""
    return next((size for size in range(min(batch_size, rollout), 0, -1) if rollout % size == 0), batch_size)
