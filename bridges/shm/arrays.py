"""Lays a bridge's arrays over a segment and gives it arrays of its own again."""

from __future__ import annotations

from ue_rl.bridges.core import BridgeCore
from ue_rl.shm.memory import StepMemory


def bind(bridge: BridgeCore, memory: StepMemory) -> None:
    """inbox.actions and the outbox's arrays become views of the segment, with what stood in them."""
    inbox, outbox = bridge.inbox, bridge.outbox
    memory.actions[...] = inbox.actions
    memory.obs[...], memory.rewards[...] = outbox.obs, outbox.rewards
    memory.dones[...], memory.truncated[...] = outbox.dones, outbox.truncated
    inbox.actions = memory.actions
    outbox.obs, outbox.rewards = memory.obs, memory.rewards
    outbox.dones, outbox.truncated = memory.dones, memory.truncated
    if memory.image is not None and outbox.image is not None:
        memory.image[...] = outbox.image
        outbox.image = memory.image


def unbind(bridge: BridgeCore) -> None:
    """The bridge lives on with copies."""
    inbox, outbox = bridge.inbox, bridge.outbox
    inbox.actions = inbox.actions.copy()
    outbox.obs, outbox.rewards = outbox.obs.copy(), outbox.rewards.copy()
    outbox.dones, outbox.truncated = outbox.dones.copy(), outbox.truncated.copy()
    if outbox.image is not None:
        outbox.image = outbox.image.copy()
