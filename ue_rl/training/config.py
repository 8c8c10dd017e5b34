"""Where the options of a run come from: defaults, a YAML file, command-line flags, in rising order of precedence.

Two kinds of YAML are read: our own (the flags' names, plus `hyperparameters:`), and the file of the Unreal plugin's own
trainer (`model:`, `total_timesteps:`, `common_parameters:`, `on_policy:` ..). Unknown keys are refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from ue_rl.system.errors import ConfigurationError, UntrustedFile
from ue_rl.system.known import require_known
from ue_rl.system.trust.files import require_trust, trusts_all
from ue_rl.system.trust.origin import is_remembered, is_signed, remember, sign
from ue_rl.training.algorithms import ALGORITHMS, OFF_POLICY
from ue_rl.training.checks import check_options
from ue_rl.training.options import ROWS, TrainOptions, plain
from ue_rl.training.yaml_files import in_one_line, read_mapping

FORMAT = 1  # of config.yaml
ORIGIN = "origin"  # its key for the signature of what a run starts
_STARTS = [name for name, row in ROWS.items() if row.starts]
_BUFFER = "replay_buffer_config"  # a hyperparameter: RLlib imports the "type" that stands in it
_REPLACED = {
    "host": "write url: tcp://HOST:PORT, or a list of such",
    "port": "write url: tcp://127.0.0.1:PORT",
    "hyperparams": "RL Zoo trains on an engine by its own command, with its own files: docs/recipes.md",
}  # keys that people write, and what is to be written


def resolve(
    flags: Mapping[str, Any],
    config: Path | Mapping[str, Any] | None,
    base: Mapping[str, Any] | None = None,
    *,
    resumed: bool = False,
) -> TrainOptions:
    """Puts `flags` (None: not given) over the YAML file over `base` over the defaults.

    Args:
        config: the YAML file, or what `read_config` gave of it.
        resumed: True only to find the run that is resumed: its config, which is the `base` then, is not known yet, so
            what depends on the backend is not checked.

    Raises:
        ConfigurationError: an unknown key, a value of the wrong type, an algorithm that does not exist, an option of
            the other backend.
    """
    first = base or {}
    layers = [dict(first), read_config(config) if isinstance(config, Path) else dict(config or {})]
    layers.append({key: value for key, value in flags.items() if value is not None})
    _one_kind_of_engine(layers)
    merged = {name: _merged(layers, name) for name, row in ROWS.items() if row.merged}
    values = {key: value for layer in layers for key, value in layer.items()}
    options = TrainOptions(**{**values, **merged})
    options.algo = str(options.algo).lower()
    check_options(options, resumed=resumed)
    return options


_KINDS = ("env", "engine", "url")


def _one_kind_of_engine(layers: list[dict[str, Any]]) -> None:
    """Where a later layer names an engine of another kind (a running one, a command, an env), the earlier one goes."""
    is_rllib = "rllib" in [layer.get("backend") for layer in layers]  # whose env runners have these over any engine
    for number, layer in enumerate(layers):
        given = [kind for kind in _KINDS if layer.get(kind) is not None]
        if len(given) != 1:
            continue  # nothing to say, or a contradiction, which is refused later
        # what is said of an engine of one kind, and means nothing for the other, goes with it
        of_others = [name for name, row in ROWS.items() if row.engines and given[0] not in row.engines.kinds]
        for before in layers[:number]:
            if before.get(given[0]) is not None:
                continue
            for name in (*_KINDS, *of_others):
                if name != given[0] and not (is_rllib and name in ("num_envs", "start_timeout")):
                    before.pop(name, None)


def _merged(layers: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """A mapping that several layers have a part of: the later one wins key by key."""
    whole: dict[str, Any] = {}
    for layer in layers:
        part = layer.pop(name, None) or {}
        if not isinstance(part, Mapping):
            raise ConfigurationError("must be a mapping", field=name, expected=f"{name}: {{NAME: VALUE}}", got=part)
        whole |= part
    return whole


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a YAML file in our terms.

    Raises:
        ConfigurationError: not readable, not YAML, not a mapping, of a newer version, or unknown keys.
    """
    content = read_whole_config(path)
    content.pop("format", None)
    content.pop(ORIGIN, None)
    return content


def signed_yaml(options: TrainOptions) -> str:
    """The options as YAML, with the signature of what they start, where one can be made here."""
    origin = sign(_said(vars(options)))
    return options.as_yaml() + (f"{ORIGIN}: {origin}\n" if origin else "")


def require_origin(path: Path, config: Mapping[str, Any], options: TrainOptions, named: Collection[str] = ()) -> None:
    """To be called before a run does what a file says: would a stranger's start a program?

    What a file given as --config starts is remembered where `--trust` stands: it needs that once.

    Args:
        path: the file of --config, or the folder of a run or of one of its checkpoints. config: what was read there.
        options: what is to be done. named: those of them that were given on the command line, so are nobody else's.

    Raises:
        UntrustedFile: it would, and nobody said that it is trusted.
    """
    theirs = {name: given for name, given in _starts(config).items() if name not in named and name != "env_kwargs"}
    if ":" not in str(theirs.get("env") or ""):  # MODULE:ID imports MODULE
        theirs.pop("env", None)
    done = _starts(vars(options))
    started = [given for name, given in theirs.items() if given is not None and given == done[name]]
    if not started:
        return
    said = _said(config)
    is_file = path.is_file()
    for place in [path] if is_file else _configs(path):
        with suppress(OSError, UnicodeDecodeError):
            found = re.search(rf"^{ORIGIN}: ([0-9a-f]+)$", place.read_text("utf-8"), re.MULTILINE)
            if found and is_signed(said, found[1]):
                return
    if is_file and trusts_all():
        remember(said)
    if is_file and is_remembered(said):
        return
    try:
        require_trust(str(started[0]))
    except UntrustedFile as error:
        name, once = (path, ", once") if is_file else (f"the configuration of {path}", "")
        error.message = f"{name} was not written here: it starts a program, imports a module or writes a file"
        error.expected = None
        error.cure = f"read it, and give --trust{once}; or give what it names yourself: --engine, --env .."
        raise


def _configs(folder: Path) -> Iterator[Path]:
    """Those that may have the signature of what a run in it starts."""
    for at in (folder, *folder.absolute().parents[:2]):
        for name in ("config.yaml", "seeds.yaml", "run.yaml"):
            yield at / name
    yield from folder.glob("checkpoints/*_steps/config.yaml")


def _starts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config starts, by name; None: nothing."""
    hyperparameters = config.get("hyperparameters") or {}
    buffer = dict(hyperparameters).get(_BUFFER)
    if isinstance(buffer, Mapping) and "type" not in str(buffer):
        buffer = None
    return {**{name: config.get(name) or None for name in _STARTS}, _BUFFER: buffer}


def _said(config: Mapping[str, Any]) -> bytes:
    """What is signed of a config: what it starts, and the folder where it does so, if that is another one elsewhere."""
    text = yaml.safe_dump(plain(_starts(config)))
    words = {word.strip("./\\") for word in re.split(r"[\s'\":,{}\[\]]+", text) if not os.path.isabs(word)}
    files = {name for word in words - {""} for name in (word, f"{word.partition('.')[0]}.py", word.partition(".")[0])}
    return f"{text}{os.getcwd() if any(map(os.path.exists, files)) else ''}".encode()


def read_whole_config(path: Path) -> dict[str, Any]:
    """As `read_config`, with the `format` that a run has written into it."""
    content = read_mapping(path, "config")
    if "model" in content or "common_parameters" in content:
        return _from_plugin(content, path)
    if content.get("format", FORMAT) != FORMAT:
        what = f"{path} was written by a newer version of ue_rl"
        cure = "install that version"
        raise ConfigurationError(what, field="format", expected=FORMAT, got=content["format"], cure=cure)
    require_known(content, [*ROWS, "format", ORIGIN], f"{path.name} has an unknown key", cures=_REPLACED)
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
        require_known(sections[name], allowed, f"{path.name} has an unknown key", name)
    algo = str(content.get("model", "ppo")).lower()
    common = sections["common_parameters"]
    taken = ("learning_rate", "gamma") if algo == "a2c" else ("learning_rate", "gamma", "batch_size")
    hyper = {key: common[key] for key in taken if key in common}
    section = "on_policy"
    if algo in OFF_POLICY:
        section = "off_policy"
    kind = sections[section]
    hyper |= {key: value for key, value in kind.items() if not isinstance(value, dict) and key not in ALGORITHMS}
    hyper |= _section(kind, algo, path)
    values: dict[str, Any] = {"algo": algo, "url": "127.0.0.1", "hyperparameters": hyper}
    values |= {key: common[key] for key in ("device", "verbose") if key in common}
    renamed = {"total_timesteps": "timesteps", "checkpoint_freq": "save_freq"}
    values |= {ours: content[theirs] for theirs, ours in renamed.items() if theirs in content}
    saved_in = sections["paths"].get("save_dir") or ""
    save_dir = str(saved_in)
    if save_dir:
        folder = PureWindowsPath(save_dir) if "\\" in save_dir else Path(save_dir)
        run_id = content.get("model_name")
        if not run_id:
            run_id = folder.name
        values["run_id"] = str(run_id)
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


def parse_setting(text: str) -> tuple[str, Any]:
    """("gamma", 0.98) of "gamma=0.98"; the value is YAML.

    Raises:
        ConfigurationError: no "=", or a value that is not YAML.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigurationError("not a setting", field="set", expected="KEY=VALUE", got=text)
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigurationError(
            "not a value",
            field=f"set {key.strip()}",
            expected="a number, a word, or YAML such as {net_arch: [64]}",
            got=value,
            cure=f"YAML says: {in_one_line(error)}",
        ) from error
    if isinstance(parsed, str):
        with suppress(ValueError):
            parsed = float(parsed)  # YAML reads 3e-4 as text
    return key.strip(), parsed
