"""The policy in NumPy against RLlib's own modules: networks, spaces, and what is refused by name."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import gymnasium as gym
import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from tests.plugins.rllib.rllink_wire import build, heard, randomize
from ue_rl.plugins.rllib.rllink.networks import ACTIVATIONS
from ue_rl.plugins.rllib.rllink.policy import RLlinkPolicy
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.gymnasium import tree_of
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import UnsupportedNetwork

torch.set_num_threads(1)
OBS = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
SPACES: dict[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(3), "one choice": gym.spaces.Discrete(1),
    "multi_discrete": gym.spaces.MultiDiscrete([2, 5, 1, 3]),
    "box": gym.spaces.Box(-2, 2, (1,), np.float32),
    "asymmetric": gym.spaces.Box(np.float32([-3, 0, 0.5]), np.float32([-1, 9, 0.75]), dtype=np.float32),
    "unbounded": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "half bounded": gym.spaces.Box(np.float32([0, -1]), np.float32([np.inf, 1]), dtype=np.float32),
}  # fmt: skip
NAMES = ["tanh", "relu", "swish", "silu", "GELU", "elu", "linear"]
N = 48


def config_of(space: str, kind: Any = PPOConfig, model: Any = None, obs: gym.Space[Any] = OBS, **env: Any) -> Any:
    config = kind().environment(observation_space=obs, action_space=SPACES[space], **env)
    return config.rl_module(model_config=DefaultModelConfig(**(model or {})))


def policy_of(config: Any, module: Any, **said: Any) -> RLlinkPolicy:
    told, state = heard(config, module)
    return RLlinkPolicy.of(state, replace(told, **said), spec_of(config))


def spec_of(config: Any) -> EnvSpec:
    action = ActionSpec.of(tree_of(config.action_space, "ACT_SPACE"))
    return EnvSpec(5, action.size, action=action)


def compare(config: Any, module: Any, scale: float = 1.0, **said: Any) -> None:
    """Logits, and the log-probabilities of what was drawn; of large numbers as near as float32 can be."""
    policy, rng = policy_of(config, module, **said), np.random.default_rng(1)
    obs = rng.normal(0, scale, (N, 5)).astype(np.float32)
    actions, logits, logp = policy.act(obs, rng)
    with torch.no_grad():
        wanted = module.forward_exploration({"obs": torch.from_numpy(obs)})["action_dist_inputs"]
        kind = module.get_exploration_action_dist_cls()
        stored = torch.from_numpy(np.asarray(actions))
        # of the stored logits, as these are what RLlib's learner takes for the old policy; and of its own
        of_stored, of_own = (kind.from_logits(x).logp(stored).numpy() for x in (torch.from_numpy(logits), wanted))
    assert logits.dtype == logp.dtype == np.float32
    assert actions.dtype == config.action_space.dtype
    large = max(1.0, float(wanted.abs().max()))
    np.testing.assert_allclose(logits, wanted.numpy(), rtol=0, atol=1e-4 if large < 100 else 1e-6 * large)
    np.testing.assert_allclose(logp, of_stored, rtol=1e-6, atol=1e-3)
    if scale == 1:
        np.testing.assert_allclose(logp, of_own, rtol=1e-6, atol=1e-3)
    assert_engine_gets(config, policy, actions)


def assert_engine_gets(config: Any, policy: RLlinkPolicy, actions: Any) -> None:
    """What RLlib's connector makes of the actions."""
    if isinstance(config.action_space, gym.spaces.Box):
        for row, action in zip(policy.how.to_engine(actions), actions, strict=True):
            made = action
            if config.normalize_actions:
                made = unsquash_action(action, config.action_space)
            elif config.clip_actions:
                made = clip_action(action, config.action_space)
            np.testing.assert_allclose(row, made, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "space"),
    [
        pytest.param(name, space, marks=() if at == number else pytest.mark.exhaustive)
        for at, name in enumerate(NAMES)
        for number, space in enumerate(SPACES)
    ],
)
def test_every_network_over_every_space(name: str, space: str) -> None:
    rng = np.random.default_rng(0)
    box = isinstance(SPACES[space], gym.spaces.Box)
    for depth, shared, head, free in itertools.product(
        range(1, 5), (False, True), ([], [6], [6, 4]), (False, True) if box else (False,)
    ):
        model = {
            "fcnet_hiddens": [16, 8, 12, 10][:depth], "fcnet_activation": name, "vf_share_layers": shared,
            "head_fcnet_hiddens": head, "head_fcnet_activation": NAMES[(NAMES.index(name) + depth) % 7],
            "free_log_std": free,
        }  # fmt: skip
        config = config_of(space, model=model)
        module = build(config)
        randomize(module, rng)
        compare(config, module)


def test_all_activations_are_tried() -> None:
    assert {name.lower() for name in NAMES} == set(ACTIVATIONS)


@pytest.mark.parametrize(
    ("name", "space"),
    [
        pytest.param(name, space, marks=() if at % 3 == number else pytest.mark.exhaustive)
        for at, name in enumerate(NAMES)
        for number, space in enumerate(("discrete", "box", "asymmetric"))
    ],
)
def test_sac(name: str, space: str) -> None:
    rng = np.random.default_rng(0)
    for depth, head, clip in itertools.product(range(1, 5), ([], [6]), (20.0, 0.5)):
        model = {
            "fcnet_hiddens": [16, 8, 12, 10][:depth], "fcnet_activation": name, "head_fcnet_hiddens": head,
            "log_std_clip_param": clip,
        }  # fmt: skip
        config = config_of(space, SACConfig, model)
        module = build(config)
        for scale in (1.0, 5.0):
            randomize(module, rng, scale)
            compare(config, module, scale)


@pytest.mark.parametrize("kind", [PPOConfig, APPOConfig, IMPALAConfig])
@pytest.mark.parametrize("clip", [0.25, 20.0, float("inf")])
@pytest.mark.parametrize("free", [False, True])
def test_standard_deviations_are_clipped(kind: Any, clip: float, free: bool) -> None:
    config = config_of("asymmetric", kind, {"fcnet_hiddens": [8], "free_log_std": free, "log_std_clip_param": clip})
    module = build(config)
    randomize(module, np.random.default_rng(2), 3)
    compare(config, module)


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "box", "asymmetric"])
@pytest.mark.parametrize("name", ["tanh", "relu", "GELU", "elu", "silu"])
def test_large_weights_and_observations(name: str, space: str) -> None:
    for weights, scale in ((1, 1000.0), (30, 1.001), (30, 1e4), (1e-3, 1.0)):
        config = config_of(space, model={"fcnet_hiddens": [32, 32], "fcnet_activation": name})
        module = build(config)
        randomize(module, np.random.default_rng(3), weights)
        compare(config, module, scale)


def test_rllibs_defaults() -> None:
    for kind, space in itertools.product((PPOConfig, SACConfig, APPOConfig), ("discrete", "box")):
        config = kind().environment(observation_space=OBS, action_space=SPACES[space])
        compare(config, build(config))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("space", ["asymmetric", "unbounded", "half bounded"])
def test_the_engine_gets_what_rllibs_connector_makes(space: str, clip: bool, normalize: bool) -> None:
    config = config_of(space, normalize_actions=normalize, clip_actions=clip)
    module = build(config)
    compare(config, module)
    assert not policy_of(config_of(space).env_runners(explore=False), module).explore


class Twisted(DefaultPPOTorchRLModule):  # type: ignore[misc]
    """RLlib's parameters by name and shape, and another function of them."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        return super()._forward(batch | {"obs": -batch["obs"]}, **kwargs)


class Attention(TorchRLModule):  # type: ignore[misc]
    def setup(self) -> None:
        """A network of one's own."""
        self.attend = torch.nn.MultiheadAttention(5, 1)
        self.pi = torch.nn.Linear(5, 3)

    def _forward(self, batch: dict[str, Any], **_: Any) -> Any:
        return {"action_dist_inputs": self.pi(self.attend(*[batch["obs"]] * 3)[0])}


class Catalog(PPOCatalog):  # type: ignore[misc]
    """A catalog of one's own."""


def mean_and_deviation(*_: Any, **__: Any) -> Any:
    return MeanStdFilter()


def of_spec(**spec: Any) -> Any:
    return config_of("discrete").rl_module(rl_module_spec=RLModuleSpec(**spec))


IMAGE = gym.spaces.Box(0, 1, (42, 42, 3), np.float32)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: config_of("discrete", model={"fcnet_use_layernorm": True}), "mlp.1.weight"),
        (lambda: config_of("discrete", model={"head_fcnet_hiddens": [4], "head_fcnet_use_layernorm": True}), "pi.net"),
        (lambda: config_of("discrete", model={"use_lstm": True}), "lstm"),
        (lambda: config_of("discrete", obs=IMAGE), "cnn"),
        (lambda: config_of("discrete", model={"fcnet_activation": "LeakyReLU"}), "leakyrelu"),
        (lambda: config_of("discrete", model={"fcnet_activation": torch.nn.Mish}), "mish"),
        (lambda: config_of("discrete", DQNConfig), "policy head|default MLPs"),
        (lambda: of_spec(module_class=Twisted), "Twisted"),
        (lambda: of_spec(module_class=Attention), "Attention"),
        (lambda: of_spec(catalog_class=Catalog), "Catalog"),
        (lambda: config_of("discrete").env_runners(env_to_module_connector=mean_and_deviation), "mean_and_deviation"),
    ],
)  # fmt: skip
def test_other_networks_are_refused_by_name(make: Any, said: str) -> None:
    config = make()
    told, state = heard(config, build(config))
    with pytest.raises(UnsupportedNetwork, match=said):
        RLlinkPolicy.of(state, told, spec_of(config_of("discrete")))


def test_what_the_user_vouches_for_is_not_refused() -> None:
    config = of_spec(catalog_class=Catalog)
    compare(config, build(config), own_code=())
    config = of_spec(module_class=DefaultPPOTorchRLModule, model_config={"fcnet_activation": "relu"})
    compare(config.rl_module(model_config={"head_fcnet_hiddens": [3]}), build(config))


@pytest.mark.parametrize(
    "wrong", [{"activation": "relu"}, {"activation": "linear"}, {"head_activation": "tanh"}, {"squashed": True}]
)
def test_what_is_wrong_is_seen(wrong: dict[str, Any]) -> None:
    """The comparison above fails where the policy is another one."""
    config = config_of("box", model={"fcnet_hiddens": [16], "head_fcnet_hiddens": [8], "log_std_clip_param": 0.1})
    module = build(config)
    randomize(module, np.random.default_rng(0))
    compare(config, module)
    with pytest.raises(AssertionError):
        compare(config, module, **wrong)
