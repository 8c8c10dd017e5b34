"""Policy: what acts in the trainer's place in inference mode, whatever of bridges/hosting.py it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.hosting import ActsPerEnv, ChecksSizes, ChecksSpaces, ForgetsEpisodes, PolicyInterface, TakesMasks
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError

Decide = Callable[[Sequence[int], NDArray[np.float32], NDArray[np.uint8]], Any]


class Policy:
    """A policy for a game.

    Args:
        interface: decides. spec: the game's.

    Attributes:
        decide: gives, for rows, their observations float32 [n, obs_size] and the masks of all rows, the actions,
            unchecked. forget: told in which rows an episode begins (None: in all).

    Raises:
        ModelMismatch: the policy has other sizes or spaces than the game.
        ConfigurationError: the game has images, which no policy is given here, or groups of agents with different
            spaces, so that one policy cannot act for all.
    """

    def __init__(self, interface: PolicyInterface, spec: EnvSpec) -> None:
        if any(group.spec != spec.groups[0].spec for group in spec.groups):
            raise ConfigurationError(
                "inference mode has one policy, but the groups of agents have different spaces",
                field="AGENTS",
                got=", ".join(group.name for group in spec.groups),
                cure="run one exported model for each group in the game itself",
            )
        if spec.image is not None:
            raise ConfigurationError(
                "inference mode gives a policy numbers, not images",
                field="IMAGE",
                got=spec.image.text(),
                cure="run the exported model in the engine, on outbox.image",
            )
        if isinstance(interface, ChecksSpaces):
            interface.require_spaces(spec)
        elif isinstance(interface, ChecksSizes):
            interface.require(spec.obs_size, spec.act_size)
        self.forget: Callable[[list[int] | None], None]
        if isinstance(interface, ForgetsEpisodes):
            self.forget = interface.reset
        else:
            self.forget = lambda rows: None
        self.decide: Decide = lambda rows, observations, masks: interface.run_inference(observations)
        if spec.mask_size and isinstance(interface, TakesMasks):
            self.decide = partial(_with_masks, interface)
        elif isinstance(interface, ActsPerEnv):
            self.decide = lambda rows, observations, masks: interface.run_inference_for(rows, observations)


def _with_masks(policy: TakesMasks, rows: Sequence[int], observations: NDArray[np.float32], masks: Any) -> Any:
    given = None
    if policy.takes_masks:
        given = masks[np.asarray(rows, np.intp)]
    return policy.run_inference_for(rows, observations, action_masks=given)
