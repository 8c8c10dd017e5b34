"""What is read of an AlgorithmConfig, and what of it is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.plugins.rllib.rllink.server import RLlinkServer
from tests.plugins.rllib.rllink.test_client import ACTIONS, walk
from ue_rl.plugins.rllib.rllink.client import RLlinkClient
from ue_rl.plugins.rllib.rllink.configs import config_of
from ue_rl.plugins.rllib.rllink.messages import ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.pickles import read_pickle
from ue_rl.plugins.rllib.rllink.policy import RLlinkPolicy
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, MalformedMessage, UnsupportedNetwork


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


def test_an_off_policy_algorithm_waits_for_its_first_steps_only() -> None:
    """SAC answers nothing before it has learnt, and it learns once of each message; test_client.py plays so."""
    config = read(num_steps_sampled_before_learning_starts=1500, n_step=(1, 3), train_batch_size=256, num_env_runners=2)
    assert (config.steps_per_sample, config.steps_before_learning) == (3, 750)
    config = read(num_steps_sampled_before_learning_starts=10, n_step=1, rollout_fragment_length=8)
    assert (config.steps_per_sample, config.steps_before_learning) == (8, 10)
    assert read(train_batch_size=256).steps_before_learning is None


def test_algorithms_that_never_answer_are_refused_by_name() -> None:
    pickled = pickle.dumps(Spec(broadcast_interval=1, train_batch_size=500))
    with (
        RLlinkServer(4, ACTIONS["discrete"], config_pickle=pickled) as server,
        pytest.raises(ConfigurationError, match=r"IMPALA and APPO .*expected PPO or SAC; got .*Spec"),
    ):
        RLlinkClient(walk(1), port=server.port, timeout=20.0).connect()
    assert server.batches == []


def test_own_code_is_refused_by_name_and_may_be_vouched_for() -> None:
    config = read(_rl_module_spec=Spec(module_class=Spec), _env_to_module_connector=read, _module_to_env_connector=None)
    own = f"module_class {Spec.__module__}.Spec", f"env_to_module_connector {Spec.__module__}.read"
    assert config.own_code == own
    state = ServerState(
        {"pi.net.mlp.0.weight": np.zeros((3, 4), np.float32), "pi.net.mlp.0.bias": np.zeros(3, np.float32)}, None, 0
    )
    spec = EnvSpec(4, 1, action=ACTIONS["discrete"])
    with pytest.raises(UnsupportedNetwork, match=r"Spec; env_to_module_connector .*read.*--default-network"):
        RLlinkPolicy.of(state, config, spec)
    assert RLlinkPolicy.of(state, config.under(ServerConfig(own_code=())), spec).net.num_logits == 3


def test_what_is_no_config() -> None:
    for said in (3, {"lr": 1}, read):
        with pytest.raises(MalformedMessage, match="no config"):
            config_of(read_pickle(pickle.dumps(said)))
