"""What a client needs of RLlib's AlgorithmConfig, from its pickle read as data. No I/O.

Source: ray.rllib.algorithms.algorithm_config and default_model_config (Ray 2.60). Where the config says nothing of the
network, RLlib's defaults hold: tanh in the encoder, relu in heads with hidden layers.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ue_rl.plugins.rllib.rllink.messages import ServerConfig
from ue_rl.plugins.rllib.rllink.pickles import Name, Object
from ue_rl.system.errors import MalformedMessage

_DEFAULT_MODEL = {"fcnet_activation": "tanh", "head_fcnet_activation": "relu"}
_DEFAULT_CLASS = re.compile(r"ray\.rllib\.algorithms\..+\.(\w+TorchRLModule|[A-Z]+Catalog)")


def config_of(said: Any) -> ServerConfig:
    """The facts in a config that `read_pickle` has read; what is missing there is None.

    Raises:
        MalformedMessage: it is no object with a state.
    """
    if not isinstance(said, Object) or not isinstance(said.state, dict):
        raise MalformedMessage(
            "SET_CONFIG holds no config of an algorithm",
            fault="server",
            field="config",
            expected="a pickle of an AlgorithmConfig",
            got=type(said).__name__,
            cure="say what it would have said: --steps-per-sample, --activation",
        )
    state = said.state
    model = {**_DEFAULT_MODEL, **_model(state)}
    return ServerConfig(
        steps_per_sample=_steps(state),
        steps_before_learning=_before_learning(state),
        activation=_activation(model["fcnet_activation"]),
        head_activation=_activation(model["head_fcnet_activation"]),
        explore=_flag(state.get("explore")),
        normalize_actions=_flag(state.get("normalize_actions")),
        clip_actions=_flag(state.get("clip_actions")),
        own_code=_own_code(state),
        asynchronous="broadcast_interval" in state,
        algorithm=str(said.made_by) if isinstance(said.made_by, Name) else None,
    )


def _steps(state: dict[Any, Any]) -> int | None:
    """Of one env runner: RLlib takes the whole batch from its runners, each of which brings its share.

    An off-policy algorithm takes what comes, and makes one update: it gets what RLlib's own runner would bring.
    """
    if _before_learning(state) is not None:
        fragment = state.get("rollout_fragment_length")
        steps = state.get("n_step")
        if isinstance(steps, (list, tuple)) and steps:
            last = steps[-1]
        else:
            last = steps
        return _count(fragment) or _count(last) or 1
    count = _count(state.get("num_learners"))
    if not count:
        count = 0
    learners = max(count, 1)
    each = _count(state.get("_train_batch_size_per_learner"))
    if each is None:
        whole = _count(state.get("train_batch_size"))
        each = None
        if whole is not None:
            each = whole // learners
    if each:
        return _share(state, each * learners)
    return None


def _before_learning(state: dict[Any, Any]) -> int | None:
    steps = _count(state.get("num_steps_sampled_before_learning_starts"))
    if steps is None:
        return None
    return _share(state, steps)


def _share(state: dict[Any, Any], steps: int) -> int:
    count = _count(state.get("num_env_runners"))
    if not count:
        count = 0
    return math.ceil(steps / max(count, 1))


def _spec(state: dict[Any, Any]) -> dict[Any, Any]:
    """What the user has said of the module; of several modules, the default one."""
    said = _state_of(state.get("_rl_module_spec"))
    several = said.get("rl_module_specs")
    if isinstance(several, dict):
        return _state_of(several.get("default_policy"))
    return said


def _model(state: dict[Any, Any]) -> dict[Any, Any]:
    """model_config, a dict or a DefaultModelConfig: the config's, under that of its module spec."""
    made: dict[Any, Any] = {}
    for found in (state.get("_model_config"), _spec(state).get("model_config")):
        if isinstance(found, dict):
            made |= found
        else:
            made |= _state_of(found)
    return made


def _own_code(state: dict[Any, Any]) -> tuple[str, ...]:
    """The user's classes and functions that RLlib's own env runner would run to get an action."""
    spec = _spec(state)
    given = {key: spec.get(key) for key in ("module_class", "catalog_class")}
    given |= {key: state.get(f"_{key}") for key in ("env_to_module_connector", "module_to_env_connector")}
    # of what is no name the kind alone: a pickle's values may hold each other, and be endless as text
    named = {
        key: str(value) if isinstance(value, Name) else f"no name: {type(value).__name__}"
        for key, value in given.items()
        if value is not None
    }
    return tuple(f"{key} {name}" for key, name in named.items() if not _DEFAULT_CLASS.fullmatch(name))


def _state_of(value: Any) -> dict[Any, Any]:
    if isinstance(value, Object) and isinstance(value.state, dict):
        return value.state
    return {}


def _count(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    return None


def _activation(value: Any) -> str:
    """A name in lower case; of a class, such as torch.nn.modules.activation.Tanh, its own. None is "linear"."""
    if value is None:
        return "linear"
    if isinstance(value, Name):
        return value.name.lower()
    if isinstance(value, str):
        return value.lower()
    return f"no name: {type(value).__name__}"


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return None
