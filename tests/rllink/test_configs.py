"""What is read of an AlgorithmConfig, and what of it is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.rllink.test_client import ACTIONS
from ue_rl.errors import MalformedMessage, UnsupportedNetwork
from ue_rl.rllink.configs import config_of
from ue_rl.rllink.messages import ServerConfig, ServerState
from ue_rl.rllink.pickles import read_pickle
from ue_rl.rllink.policy import Policy
from ue_rl.spec import EnvSpec


class Spec:
    """As RLlib's RLModuleSpec: an object with a state."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


def read(**state: Any) -> ServerConfig:
    return config_of(read_pickle(pickle.dumps(Spec(**state))))


def test_a_model_config_may_stand_in_two_places() -> None:
    both = read(_model_config={"fcnet_activation": "relu"}, _rl_module_spec=Spec(model_config={"fcnet_hiddens": [3]}))
    assert both.activation == "relu"
    over = read(
        _model_config={"fcnet_activation": "relu"}, _rl_module_spec=Spec(model_config=Spec(fcnet_activation="ELU"))
    )
    assert over.activation == "elu"
    several = Spec(rl_module_specs={"default_policy": Spec(model_config={"head_fcnet_activation": "silu"})})
    assert read(_rl_module_spec=several).head_activation == "silu"


def test_what_an_activation_may_be() -> None:
    assert (read(lr=1).activation, read(lr=1).head_activation) == ("tanh", "relu")  # RLlib's defaults
    assert read(_model_config={"fcnet_activation": None}).activation == "linear"
    assert read(_model_config={"fcnet_activation": Spec}).activation == "spec"
    assert read(_model_config={"fcnet_activation": Spec(approximate="tanh")}).activation == "no name: Object"


def test_own_code_is_refused_by_name_and_may_be_vouched_for() -> None:
    config = read(_rl_module_spec=Spec(module_class=Spec), _env_to_module_connector=read, _module_to_env_connector=None)
    own = f"module_class {Spec.__module__}.Spec", f"env_to_module_connector {Spec.__module__}.read"
    assert config.own_code == own
    state = ServerState(
        {"pi.net.mlp.0.weight": np.zeros((3, 4), np.float32), "pi.net.mlp.0.bias": np.zeros(3, np.float32)}, None, 0
    )
    spec = EnvSpec(4, 1, action=ACTIONS["discrete"])
    with pytest.raises(UnsupportedNetwork, match=r"Spec; env_to_module_connector .*read.*--default-network"):
        Policy.of(state, config, spec)
    assert Policy.of(state, config.under(ServerConfig(own_code=())), spec).net.num_logits == 3


def test_what_is_no_config() -> None:
    for said in (3, {"lr": 1}, read):
        with pytest.raises(MalformedMessage, match="no config"):
            config_of(read_pickle(pickle.dumps(said)))
