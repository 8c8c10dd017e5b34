"""How episodes begin: the resets of a transport whose engines may be lost meanwhile (see StepBuffers.lost)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.transport import Options, Seeds, Transport
from ue_rl.system.errors import UnexpectedMessage


def begin_episodes(
    transport: Transport,
    env_ids: Sequence[int] | None,
    seeds: Seeds = None,
    options: Options = None,
    also_cut: bool = False,
) -> Iterator[tuple[StepBuffers, Sequence[int], list[int]]]:
    """Resets `env_ids` (None: all) until each of them has begun; one pair of reset and receive for each turn.

    Envs whose engine is lost meanwhile are asked again, with the same seeds and options.

    Args:
        also_cut: envs that were not asked, and whose episode ended because their engine was lost, begin one, too.

    Yields:
        after each round trip: the transport's buffers, the envs that have begun with it, and those that were not asked
        and whose episode is over. They may be named again in a later turn.
    """
    while True:
        transport.reset(env_ids, seeds, options)
        buffers = transport.receive()
        asked = range(transport.spec.num_envs) if env_ids is None else env_ids
        if not buffers.lost:
            yield buffers, asked, []
            return
        lost = set(buffers.lost)
        cut = sorted(lost.difference(asked))
        yield buffers, [env for env in asked if env not in lost], cut
        places = [place for place, env in enumerate(asked) if env in lost]
        more = []
        if also_cut:
            more = cut
        env_ids = [*(asked[place] for place in places), *more]
        if not env_ids:
            return
        seeds = _again(seeds, places, len(more))
        options = _again(options, places, len(more))


def _again(values: Sequence[Any] | None, places: list[int], more: int) -> list[Any] | None:
    if values is None:
        return None
    return [*(values[place] for place in places), *([None] * more)]


def start_episodes(
    transport: Transport,
    env_ids: Sequence[int] | None = None,
    seeds: Seeds = None,
    options: Options = None,
) -> StepBuffers:
    """Resets `env_ids` (None: all) and waits for their first observations.

    Seeds and options go to an engine that takes them; another one is left alone. A Ctrl-C between a step's request and
    its answers leaves the answers owed: they are taken in and dropped first.

    Returns:
        the transport's buffers; `lost` names envs that were not asked and whose engine was lost.
    """
    features = transport.spec.features
    cut: set[int] = set()
    with suppress(UnexpectedMessage):  # as a rule nothing was asked
        cut.update(transport.receive().lost)
    infos: dict[int, dict[str, Any]] = {}
    given = seeds if "SEED" in features else None, options if "OPTIONS" in features else None
    buffers: StepBuffers | None = None
    for buffers, begun, lost in begin_episodes(transport, env_ids, *given):
        cut = cut.difference(begun).union(lost)
        if buffers.lost or infos:  # the next turn clears them
            again = buffers.lost.difference(lost)
            infos.update({row: info for row, info in buffers.infos.items() if row not in again})
    assert buffers is not None
    buffers.infos.update(infos)
    if cut:
        buffers.lost.update(cut)
    return buffers


class CutOff:
    """Envs whose engine was lost while others of its envs were reset between two steps: the next step says so.

    Attributes:
        envs: which; they are reset within the next step, so that their engine may take it.
    """

    def __init__(self) -> None:
        self.envs: list[int] = []
        self._rows: dict[int, tuple[Any, ...]] = {}

    def keep(self, buffers: StepBuffers) -> None:
        """Notes the envs in `lost` and their last observations; their infos are taken out."""
        for env in buffers.lost:
            image = None if buffers.image is None else buffers.image[env].copy()
            self._rows[env] = buffers.obs[env].copy(), buffers.masks[env].copy(), image, buffers.infos.pop(env, {})
        self.envs = sorted(self._rows)

    def forget(self, envs: Sequence[int]) -> None:
        """These have begun an episode meanwhile."""
        if self.envs:
            self._rows = {env: row for env, row in self._rows.items() if env not in envs}
            self.envs = sorted(self._rows)

    def tell(self, buffers: StepBuffers) -> None:
        """Writes their rows: the last observation, reward 0, done and truncated."""
        for env, (obs, mask, image, info) in self._rows.items():
            buffers.obs[env] = obs
            buffers.masks[env] = mask
            if buffers.image is not None:
                buffers.image[env] = image
            buffers.rewards[env] = 0
            buffers.dones[env] = 1
            buffers.truncated[env] = 1
            buffers.infos[env] = info
        self._rows = {}
        self.envs = []
