"""RLlinkPolicy: what a server has sent, as something that acts: a network and a distribution, from its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.rllib.rllink.distributions import Distribution, distribution
from ue_rl.plugins.rllib.rllink.messages import ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.networks import Network, network
from ue_rl.plugins.rllib.rllink.onnx_network import OnnxNetwork
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ActionError, UnsupportedNetwork

Array = NDArray[np.float32]


@dataclass(frozen=True)
class RLlinkPolicy:
    """Acts for N envs at once.

    Args:
        net: observations to logits. how: logits to actions. explore: draw actions; else the likeliest one.
        seq: the server's number of these weights.
    """

    net: Network | OnnxNetwork
    how: Distribution
    explore: bool
    seq: int

    @classmethod
    def of(cls, state: ServerState, config: ServerConfig, spec: EnvSpec) -> RLlinkPolicy:
        """The policy in a state.

        Args:
            config: the server's, with the user's words in it. spec: of the engine.

        Raises:
            UnsupportedNetwork: it cannot be rebuilt, or does not fit the engine; it says what is not known.
        """
        weights = state.weights or {}
        if config.own_code:
            raise UnsupportedNetwork(
                "RLlib's config has classes or connectors of its own, which do not run here",
                field="config",
                expected="RLlib's default module and connectors",
                got="; ".join(config.own_code),
                cure="take them out of the config; where they change neither network nor observations nor actions, "
                "say so: --default-network",
            )
        gaussian = not spec.action_spec.counts
        squashed = config.squashed
        if squashed is None:  # SAC's policy for DISCRETE is as any other
            squashed = gaussian and any(name.startswith("pi_encoder") for name in weights)
        how = distribution(
            spec.action_spec,
            squashed=squashed,
            normalize=config.normalize_actions is not False,
            clip=bool(config.clip_actions),
        )
        net = _network(state, config, gaussian=gaussian and not squashed)
        for what, expected, got in (
            ("OBS", net.obs_size, spec.obs_size),
            ("ACT_SPACE", how.num_logits, net.num_logits),
        ):
            if expected != got:
                raise UnsupportedNetwork(
                    "the server's policy does not fit the engine",
                    fault="caller",
                    field=what,
                    expected=f"{expected} numbers" if what == "OBS" else f"{expected} outputs for the action space",
                    got=got,
                    cure="give RLlib's config the engine's spaces: `ue-rl inspect` shows them",
                )
        return cls(net, how, config.explore is not False, state.seq)

    def act(self, obs: Array, rng: np.random.Generator) -> tuple[NDArray[Any], Array, Array]:
        """(actions as an episode stores them, logits, log-probabilities) of float32 [N, obs_size].

        Raises:
            ActionError: some are not finite.
        """
        with np.errstate(all="ignore"):
            logits = self.net(obs)
            generator = None
            if self.explore:
                generator = rng
            actions, logp = self.how.draw(logits, generator)
        if not np.isfinite(logp).all():
            raise ActionError(
                "RLlib's policy gives numbers that are not finite",
                env_id=int(np.argmin(np.isfinite(logp))),
                field="action_logp",
                expected="numbers",
                got=logits[np.argmin(np.isfinite(logp))].tolist(),
                cure="its training has diverged, or this env's observations are far too large",
            )
        return actions, logits, logp


def _network(state: ServerState, config: ServerConfig, *, gaussian: bool) -> Network | OnnxNetwork:
    if state.onnx is not None:
        return OnnxNetwork(state.onnx)
    if config.activation is None:
        what = "the server does not say which activation its network has, and weights do not either"
        raise UnsupportedNetwork(what, field="activation", cure="say it: --activation tanh (RLlib's default)")
    weights = state.weights or {}
    return network(weights, config.activation, config.head_activation, gaussian=gaussian)
