"""Networks and distributions in NumPy against torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ue_rl.plugins.rllib.rllink.distributions import distribution
from ue_rl.plugins.rllib.rllink.networks import ACTIVATIONS, network
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.system.errors import UnsupportedNetwork

MODULES = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "swish": nn.SiLU, "elu": nn.ELU, "gelu": nn.GELU}
N = 64


def mlp(sizes: list[int], name: str, last: bool) -> nn.Sequential:
    """Linear layers at even places, as RLlib's are; `last`: an activation stands behind the last one, too."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), MODULES[name]()]
    return nn.Sequential(*(layers if last else layers[:-1]))


def weights_of(encoder: str, body: nn.Sequential, head: nn.Sequential, **more: Any) -> dict[str, np.ndarray]:
    named = [(f"{encoder}.net.mlp.{n}", p) for n, p in body.named_parameters()]
    named += [(f"pi.net.mlp.{n}", p) for n, p in head.named_parameters()]
    return {name: p.detach().numpy() for name, p in named} | {f"pi.{key}": value for key, value in more.items()}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", sorted(MODULES))
@pytest.mark.parametrize(
    ("encoder", "hidden", "head"),
    [
        ("encoder.encoder", [32, 32], []),
        ("encoder.actor_encoder", [16], []),
        ("pi_encoder", [8, 16, 24, 8], []),
        ("encoder.actor_encoder", [16], [12, 12]),
    ],
)
def test_the_same_numbers_as_torch(name: str, encoder: str, hidden: list[int], head: list[int]) -> None:
    body, last = mlp([5, *hidden], name, last=True), mlp([hidden[-1], *head, 6], "relu", last=False)
    weights = weights_of(encoder, body, last, log_std_clip_param_const=np.array([20.0], np.float32))
    # nets that a value function has are no part of the policy
    weights["vf.net.mlp.0.weight"] = np.zeros((1, hidden[-1]), np.float32)
    policy = network(weights, name.upper(), "relu", gaussian=False)
    obs = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32) * 3
    with torch.no_grad():
        wanted = last(body(torch.from_numpy(obs))).numpy()
    assert (policy.obs_size, policy.num_logits) == (5, 6)
    np.testing.assert_allclose(policy(obs), wanted, atol=2e-6, rtol=1e-5)
    assert policy(obs).dtype == np.float32


def test_standard_deviations_of_their_own_and_their_limits() -> None:
    body, head = mlp([3, 8], "tanh", last=True), mlp([8, 2], "tanh", last=False)
    clip = np.float32([2])
    weights = weights_of("encoder.encoder", body, head, log_std=np.float32([0.5, -3]), log_std_clip_param_const=clip)
    own = network(weights, "tanh", None, gaussian=True)
    rows = own(np.ones((N, 3), np.float32))
    assert rows.shape == (N, own.num_logits) == (N, 4)
    assert (rows[:, 2:] == np.float32([0.5, -2])).all()
    with torch.no_grad():
        head[0].bias[:] = torch.tensor([9.0, 9.0])
    limited = network(
        weights_of("encoder.encoder", body, head, log_std_clip_param_const=clip), "tanh", None, gaussian=True
    )
    rows = limited(np.ones((N, 3), np.float32))
    assert (rows[:, 0] > 5).all()
    assert (rows[:, 1] == 2).all()


@pytest.mark.parametrize(
    ("strange", "said"),
    [
        ({"encoder.encoder.net.cnn.0.weight": np.zeros((8, 3, 4, 4), np.float32)}, "cnn"),
        ({"encoder.encoder.net.mlp.1.weight": np.zeros(8, np.float32)}, "mlp.1.weight"),
        ({"encoder.tokenizer.lstm.weight_ih_l0": np.zeros((8, 8), np.float32)}, "lstm"),
        ({"my_own.weight": np.zeros((2, 2), np.float32)}, "my_own"),
        ({"encoder.encoder.net.mlp.2.weight": np.zeros((4, 9), np.float32)}, "fit together"),
    ],
)
def test_other_networks_are_refused_by_name(strange: dict[str, np.ndarray], said: str) -> None:
    weights = weights_of("encoder.encoder", mlp([3, 8], "tanh", last=True), mlp([8, 2], "tanh", last=False))
    with pytest.raises(UnsupportedNetwork, match=said):
        network(weights | strange, "tanh", None, gaussian=False)
    with pytest.raises(UnsupportedNetwork, match="no policy head"):
        network({"vf.net.mlp.0.weight": np.zeros((1, 3), np.float32)}, "tanh", None, gaussian=False)
    with pytest.raises(UnsupportedNetwork, match="activation"):
        network(weights, "snake", None, gaussian=False)


def test_every_activation_is_tried() -> None:
    assert set(ACTIVATIONS) == {*MODULES, "linear"}


RNG = np.random.default_rng(7)
LOGITS = {n: RNG.normal(size=(20_000, n)).astype(np.float32) for n in (2, 4, 5)}


def test_categorical() -> None:
    draw = distribution(ActionSpec.discrete(4), squashed=False, normalize=True, clip=False)
    logits = LOGITS[4]
    actions, logp = draw.draw(logits, np.random.default_rng(0))
    torch_one = torch.distributions.Categorical(logits=torch.from_numpy(logits))
    np.testing.assert_allclose(logp, torch_one.log_prob(torch.from_numpy(actions)).numpy(), atol=1e-5)
    same = np.broadcast_to(logits[:1], logits.shape)
    drawn, _ = draw.draw(np.ascontiguousarray(same), np.random.default_rng(1))
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, torch_one.probs[0].numpy(), atol=0.015)
    best, _ = draw.draw(logits, None)
    assert (best == logits.argmax(axis=1)).all()
    assert draw.to_engine(best).shape == (len(best), 1)


def test_multi_categorical() -> None:
    draw = distribution(ActionSpec.multi_discrete((2, 3)), squashed=False, normalize=True, clip=False)
    actions, logp = draw.draw(LOGITS[5], np.random.default_rng(0))
    wanted = sum(
        torch.distributions.Categorical(logits=part).log_prob(torch.from_numpy(actions[:, n]))
        for n, part in enumerate(torch.from_numpy(LOGITS[5]).split([2, 3], dim=1))
    )
    np.testing.assert_allclose(logp, wanted.numpy(), atol=1e-5)
    assert actions.shape == (len(logp), 2)


@pytest.mark.parametrize(("normalize", "clip"), [(True, False), (False, True), (False, False)])
def test_gaussian(normalize: bool, clip: bool) -> None:
    draw = distribution(ActionSpec.box(2, -2, 6), squashed=False, normalize=normalize, clip=clip)
    actions, logp = draw.draw(LOGITS[4], np.random.default_rng(0))
    mean, log_std = torch.from_numpy(LOGITS[4]).chunk(2, dim=1)
    wanted = torch.distributions.Normal(mean, log_std.exp()).log_prob(torch.from_numpy(actions)).sum(1)
    np.testing.assert_allclose(logp, wanted.numpy(), atol=1e-3, rtol=1e-4)
    engine = draw.to_engine(actions)
    inner = np.abs(actions).max(axis=1) < 1
    if normalize:
        np.testing.assert_allclose(engine[inner], 2 + 4 * actions[inner], rtol=1e-5, atol=1e-6)
    if normalize or clip:
        assert engine.min() == -2
        assert engine.max() == (6 if normalize or actions.max() > 6 else actions.max())
    else:
        assert (engine == actions).all()
    assert (draw.draw(LOGITS[4], None)[0] == mean.numpy()).all()


def test_log_probabilities_are_those_of_the_stored_action() -> None:
    """RLlib computes them from the float32 that was stored, which for a far mean is not the one that was drawn."""
    logits = np.tile(np.float32([[3000, -9]]), (200, 1))
    for squashed, far in ((False, logits), (True, np.float32([2.5, 0]) + 0 * logits)):
        draw = distribution(ActionSpec.box(1), squashed=squashed, normalize=True, clip=False)
        actions, logp = draw.draw(far, np.random.default_rng(0))
        assert (logp == draw.logp(far, actions)).all()
        wanted = torch.distributions.Normal(3000.0, np.exp(-9.0)).log_prob(torch.from_numpy(actions).double()).sum(1)
        if not squashed:
            np.testing.assert_allclose(logp, wanted.numpy(), rtol=1e-5)


def test_only_a_diag_gaussian_has_its_deviations_clipped() -> None:
    body, head = mlp([3, 8], "tanh", last=True), mlp([8, 4], "tanh", last=False)
    with torch.no_grad():
        head[0].bias[:] = torch.tensor([0.0, 0.0, 30.0, -30.0])
    weights = weights_of("pi_encoder", body, head, log_std_clip_param_const=np.float32([2]))
    rows = network(weights, "tanh", None, gaussian=False)(np.ones((2, 3), np.float32))
    assert (np.abs(rows[:, 2:]) > 20).all()


def test_a_box_without_bounds_is_not_stretched() -> None:
    draw = distribution(ActionSpec.box(1, -np.inf, np.inf), squashed=False, normalize=True, clip=False)
    assert draw.to_engine(np.float32([[7.5]])) == 7.5


def test_squashed_gaussian() -> None:
    draw = distribution(ActionSpec.box(2, -2, 2), squashed=True, normalize=True, clip=False)
    actions, logp = draw.draw(LOGITS[4], np.random.default_rng(0))
    mean, log_std = torch.from_numpy(LOGITS[4]).double().chunk(2, dim=1)
    base = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    squashed = torch.distributions.TransformedDistribution(base, [torch.distributions.TanhTransform()])
    inner = np.abs(actions).max(axis=1) < 0.99
    wanted = squashed.log_prob(torch.from_numpy(actions).double()).sum(1).numpy()
    np.testing.assert_allclose(logp[inner], wanted[inner], atol=2e-3)
    assert np.abs(actions).max() <= 1
    assert np.abs(draw.to_engine(actions)).max() <= 2


def test_spaces_without_a_distribution_are_refused_by_name() -> None:
    for action, squashed in ((ActionSpec.multi_binary(3), False), (ActionSpec.discrete(2), True)):
        with pytest.raises(UnsupportedNetwork, match="action space"):
            distribution(action, squashed=squashed, normalize=True, clip=False)
