"""A run as a YAML file, or a tree of them, and the behaviours and memories that it names.

    scene: foraging
    episodes: 5
    behavior: llm                 # rules, random, llm, model.onnx, model.zip, or module:Class
    vecnormalize: statistics.pkl  # of a model.zip; none: it has none; left out: those beside it
    backend: smollm               # a mapping, or the name of backend/smollm.yaml beside this file
    memory: {kind: vector, capacity: 1000, embedder: {kind: onnx, path: model.onnx, tokenizer: tokenizer.json}}

`scene`, `backend` and `memory` may name a file in a folder of that name (scenes/ for a scene).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from ue_rl.inference.statistics import NONE
from ue_rl.plugins.arena.answers import without_thoughts
from ue_rl.plugins.arena.backends import Backend, LlamaBackend, OpenAIBackend, ScriptedBackend
from ue_rl.plugins.arena.behaviors import AgentBehavior, PolicyBehavior, RandomBehavior
from ue_rl.plugins.arena.llm import LLMAgentBehavior
from ue_rl.plugins.arena.memory import EMBEDDERS, MEMORIES, Memory
from ue_rl.plugins.arena.scenes import SCENES, Scene
from ue_rl.plugins.arena.scenes.rules import RULES
from ue_rl.plugins.arena.types import checked
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.known import require_known
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.loading import loaded

BACKENDS = {"openai": OpenAIBackend, "llama": LlamaBackend, "scripted": ScriptedBackend}
_FOLDERS = {"scene": "scenes", "backend": "backend", "memory": "memory"}


class Config(BaseModel):
    """What a file may say."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    scene: Any = "foraging"
    behavior: str = "rules"
    vecnormalize: str | None = None
    episodes: PositiveInt = 1
    seed: NonNegativeInt | None = 0
    deadline: PositiveFloat | None = None
    backend: Any = None
    memory: Any = None
    llm: dict[str, Any] = Field(default_factory=dict)


class SceneConfig(BaseModel):
    """A scene and what is changed of it. Smaller fields have no room for what stands in them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    name: str = "foraging"
    max_ticks: PositiveInt = 1
    tick_rate: PositiveFloat = 1.0
    size: float = Field(15.0, ge=10.0)
    sight: PositiveFloat = 1.0


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The config of a file, with `key.key=value` put over it; values are YAML.

    Raises:
        ConfigurationError: no such file, not YAML, a key that there is not, or a value of the wrong type.
    """
    with named_if_missing("a config file"):
        import yaml

    def read(text: str, field: str) -> Any:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigurationError("not YAML", field=field, got=str(error)) from error

    def text_of(file: Path) -> str:
        try:
            return file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ConfigurationError("not a config file", field="config", got=str(error)) from error

    def read_tree() -> None:
        for key, folder in _FOLDERS.items():
            file = None
            if path is not None:
                file = path.parent / folder / f"{config.get(key)}.yaml"
            if file is not None and isinstance(config.get(key), str) and file.exists():
                config[key] = read(text_of(file), key)

    config: Any
    if path is None:
        config = {}
    else:
        config = read(text_of(path), "config")
    if not isinstance(config, dict):
        raise ConfigurationError("a config is a mapping", field="config", got=config)
    read_tree()  # what they say may be changed
    for each in overrides:
        name, equals, text = each.partition("=")
        *groups, last = name.split(".")
        if not equals or not all((*groups, last)):
            raise ConfigurationError("not an override", field="set", expected="key=value or group.key=value", got=each)
        at: Any = config
        for group in groups:
            known = at.get(group)
            short = {}
            if isinstance(known, str):
                word = "kind"
                if group == "scene":
                    word = "name"
                short = {word: known}
            if isinstance(known, dict):
                at[group] = at = known
            else:
                at[group] = at = short
        at[last] = read(text, name)
        read_tree()  # another one may be named
    require_known(config, Config.model_fields, "no such key")
    return dict(_checked(Config, config))


def _checked(kind: type[BaseModel], given: Any, field: str = "") -> dict[str, Any]:
    return checked(kind, given, "a wrong setting", field).model_dump(exclude_unset=True)


def scene_of(config: Mapping[str, Any]) -> type[Scene]:
    """The scene by its name, or a Scene class as module:Class.

    Raises:
        ConfigurationError: there is none of that name.
    """
    given = config.get("scene", {})
    if isinstance(given, Mapping):
        section = given
    else:
        section = {"name": given}
    changed = _checked(SceneConfig, section, "scene")
    name = changed.pop("name", "foraging")
    found: Any
    if ":" in name:
        found = loaded(name, "scene")
    else:
        found = SCENES.get(name)
    if not (isinstance(found, type) and issubclass(found, Scene)):
        raise ConfigurationError(
            "no such scene", field="scene", expected=f"{', '.join(SCENES)} or module:Class", got=name
        )
    if changed:
        return type(found.__name__, (found,), changed)
    return found


def behaviors_of(
    config: Mapping[str, Any], scene: type[Scene], folder: Path | None = None, named: str | None = None
) -> dict[str, AgentBehavior]:
    """A behaviour for each agent of the scene.

    Args:
        folder: where memories are kept; None: nowhere. named: instead of the config's behavior.

    Raises:
        ConfigurationError: what the config names does not exist, or does not take what it says.
    """
    kind = named
    if not kind:
        kind = config.get("behavior", "rules")
    name = str(kind)
    backend = None
    if name == "llm":
        backend = _chosen("backend", config.get("backend"), BACKENDS)
    return {agent: _behavior(name, agent, config, scene, backend, folder) for agent in scene.agents}


def _behavior(
    name: str, agent: str, config: Mapping[str, Any], scene: type[Scene], backend: Backend | None, folder: Path | None
) -> AgentBehavior:
    if backend is not None:
        section = config.get("memory") or {}
        memory = _memory(section, backend, folder and folder / f"memory-{agent}.jsonl")
        mind: AgentBehavior = _made(
            "llm", lambda **options: LLMAgentBehavior(backend, memory, **options), config.get("llm", {})
        )
        return mind
    if name == "random":
        number = config.get("seed")
        if not number:
            number = 0
        return RandomBehavior(int(number))
    if name == "rules":
        return RULES.get(scene.name, RULES["foraging"])()
    if name.endswith(".onnx"):
        return PolicyBehavior.load(name, scene)
    if name.endswith(".zip"):
        statistics = config.get("vecnormalize")
        return PolicyBehavior.load(name, scene, False if statistics in (False, NONE) else statistics)
    if ":" in name:
        behavior = loaded(name, "behavior")()
        if isinstance(behavior, AgentBehavior):
            return behavior
    expected = "rules, random, llm, a model's .onnx or .zip, or module:Class of an AgentBehavior"
    raise ConfigurationError("no such behaviour", field="behavior", expected=expected, got=name)


def _memory(given: Any, backend: Backend, path: Path | None) -> Memory:
    """`summarise: model` lets the agent's model sum up; `embedder` is a mapping."""
    if isinstance(given, Mapping):
        options = {"kind": "sliding", **given}
    else:
        options = {"kind": given}
    if "embedder" in options:
        options["embedder"] = _chosen("memory.embedder", options["embedder"], EMBEDDERS)
    if options.get("summarise") == "model":
        options["summarise"] = lambda text: without_thoughts(backend.generate(f"{text}\n\nIn short, a few lines:").text)
    memory: Memory = _chosen("memory", {"path": path, **options}, MEMORIES)
    return memory


def _chosen(field: str, given: Any, kinds: Mapping[str, Any]) -> Any:
    """What `given` asks for: the name of a kind, or a mapping with it and its settings."""
    if isinstance(given, Mapping):
        options = dict(given)
    else:
        options = {"kind": given}
    kind = options.pop("kind", None)
    if kind not in kinds:
        raise ConfigurationError(f"no such {field}", field=f"{field}.kind", expected=", ".join(kinds), got=kind)
    return _made(field, kinds[kind], options)


def _made(field: str, kind: Any, options: Mapping[str, Any]) -> Any:
    try:
        return kind(**options)
    except ConfigurationError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            "a setting that does not exist, or is of the wrong type", field=field, got=str(error)
        ) from error
