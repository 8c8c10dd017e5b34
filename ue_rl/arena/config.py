"""A run as a YAML file, or a tree of them, and the behaviours and memories that it names.

    scene: foraging
    episodes: 5
    behavior: llm                 # rules, random, llm, model.onnx, model.zip, or module:Class
    backend: smollm               # a mapping, or the name of backend/smollm.yaml beside this file
    memory: {kind: vector, capacity: 1000, embedder: {kind: onnx, path: model.onnx, tokenizer: tokenizer.json}}

`scene`, `backend` and `memory` may name a file in a folder of that name (scenes/ for a scene).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ue_rl.arena.backends import Backend, LlamaBackend, OpenAIBackend, ScriptedBackend
from ue_rl.arena.behaviors import AgentBehavior, PolicyBehavior, RandomBehavior
from ue_rl.arena.llm import LLMAgentBehavior
from ue_rl.arena.memory import EMBEDDERS, MEMORIES, Memory
from ue_rl.arena.scenes import SCENES, World
from ue_rl.arena.scenes.rules import RULES
from ue_rl.errors import ConfigurationError, nearest
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.loading import loaded

BACKENDS = {"openai": OpenAIBackend, "llama": LlamaBackend, "scripted": ScriptedBackend}
KEYS = ("scene", "behavior", "episodes", "seed", "deadline", "backend", "memory", "llm")
_FOLDERS = {"scene": "scenes", "backend": "backend", "memory": "memory"}


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The config of a file, with `key.key=value` put over it; values are YAML.

    Raises:
        ConfigurationError: no such file, not YAML, or a key that there is not.
    """
    with named_if_missing("a config file"):
        import yaml

    def read(file: Path) -> Any:
        try:
            return yaml.safe_load(file.read_text("utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ConfigurationError("not a config file", field="config", got=str(error)) from error

    config: Any = {} if path is None else read(path)
    if not isinstance(config, dict):
        raise ConfigurationError("a config is a mapping", field="config", got=config)
    for each in overrides:
        name, equals, text = each.partition("=")
        *groups, last = name.split(".")
        if not equals or not all((*groups, last)):
            raise ConfigurationError("not an override", field="set", expected="key=value or group.key=value", got=each)
        at = config
        for group in groups:
            at[group] = at[group] if isinstance(at.get(group), dict) else {}
            at = at[group]
        at[last] = yaml.safe_load(text)
    for key, folder in _FOLDERS.items():
        file = None if path is None else path.parent / folder / f"{config.get(key)}.yaml"
        if file is not None and isinstance(config.get(key), str) and file.exists():
            config[key] = read(file)
    for key in config:
        if key not in KEYS:
            raise ConfigurationError("no such key", field=str(key), expected=", ".join(KEYS), cure=nearest(key, KEYS))
    return config


def scene_of(config: Mapping[str, Any]) -> type[World]:
    """The scene by its name, or a World class as module:Class.

    Raises:
        ConfigurationError: there is none of that name.
    """
    given = config.get("scene", "foraging")
    name = given.get("name") if isinstance(given, Mapping) else given
    found: Any = SCENES.get(str(name)) if ":" not in str(name) else loaded(str(name), "scene")
    if not (isinstance(found, type) and issubclass(found, World)):
        raise ConfigurationError(
            "no such scene", field="scene", expected=f"{', '.join(SCENES)} or module:Class", got=name
        )
    changed = {key: value for key, value in given.items() if key != "name"} if isinstance(given, Mapping) else {}
    if unknown := [key for key in changed if key not in ("max_ticks", "tick_rate", "size", "sight")]:
        raise ConfigurationError("a scene has no such setting", field=f"scene.{unknown[0]}")
    return type(found.__name__, (found,), changed) if changed else found


def behaviors_of(
    config: Mapping[str, Any], scene: type[World], folder: Path | None = None, named: str | None = None
) -> dict[str, AgentBehavior]:
    """A behaviour for each agent of the scene.

    Args:
        folder: where memories are kept; None: nowhere. named: instead of the config's behavior.

    Raises:
        ConfigurationError: what the config names does not exist, or does not take what it says.
    """
    name = str(named or config.get("behavior", "rules"))
    backend = _chosen("backend", config.get("backend", {}), BACKENDS) if name == "llm" else None
    return {agent: _behavior(name, agent, config, scene, backend, folder) for agent in scene.agents}


def _behavior(
    name: str, agent: str, config: Mapping[str, Any], scene: type[World], backend: Backend | None, folder: Path | None
) -> AgentBehavior:
    if backend is not None:
        memory = _memory(config.get("memory", {}), backend, folder and folder / f"memory-{agent}.jsonl")
        mind: AgentBehavior = _made(
            "llm", lambda **options: LLMAgentBehavior(backend, memory, **options), config.get("llm", {})
        )
        return mind
    if name == "random":
        return RandomBehavior(int(config.get("seed") or 0))
    if name == "rules":
        return RULES.get(scene.name, RULES["foraging"])()
    if name.endswith((".onnx", ".zip")):
        return PolicyBehavior.load(name, scene)
    if ":" in name:
        behavior = loaded(name, "behavior")()
        if isinstance(behavior, AgentBehavior):
            return behavior
    expected = "rules, random, llm, a model's .onnx or .zip, or module:Class of an AgentBehavior"
    raise ConfigurationError("no such behaviour", field="behavior", expected=expected, got=name)


def _memory(given: Any, backend: Backend, path: Path | None) -> Memory:
    """`summarise: model` lets the agent's model sum up; `embedder` is a mapping."""
    options = {"kind": "sliding", **given} if isinstance(given, Mapping) else {"kind": given}
    if "embedder" in options:
        options["embedder"] = _chosen("memory.embedder", options["embedder"], EMBEDDERS)
    if options.get("summarise") == "model":
        options["summarise"] = lambda text: backend.generate(f"{text}\n\nIn short, a few lines:").text
    memory: Memory = _chosen("memory", {"path": path, **options}, MEMORIES)
    return memory


def _chosen(field: str, given: Any, kinds: Mapping[str, Any]) -> Any:
    """What `given` asks for: the name of a kind, or a mapping with it and its settings."""
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = options.pop("kind", None)
    if kind not in kinds:
        raise ConfigurationError(f"no such {field}", field=f"{field}.kind", expected=", ".join(kinds), got=kind)
    return _made(field, kinds[kind], options)


def _made(field: str, kind: Any, options: Mapping[str, Any]) -> Any:
    try:
        return kind(**options)
    except TypeError as error:
        raise ConfigurationError("a setting that does not exist, or is of the wrong type", field=field,
                                 got=str(error)) from error  # fmt: skip
