"""seeded(transport, journal): resets whose seeds and drawn parameters a journal gives and remembers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

from ue_rl.envs.journal import Journal
from ue_rl.transport import Options, Seeds, Transport


def seeded(transport: Transport, journal: Journal) -> Transport:
    """What resets envs with the seeds of a journal, which notes them. It has no more of a Transport than that takes."""
    return cast(Transport, _SeededResets(transport, journal))


class _SeededResets:
    def __init__(self, transport: Transport, journal: Journal) -> None:
        self._transport, self._journal = transport, journal
        self.spec = transport.spec
        self.receive = transport.receive

    def reset(self, env_ids: Sequence[int] | None = None, seeds: Seeds = None, options: Options = None) -> None:
        """See Transport.reset."""
        journal, transport = self._journal, self._transport
        envs = range(self.spec.num_envs) if env_ids is None else env_ids
        seeds = journal.seeds_of(envs, seeds)
        draw = transport.draw_parameters
        if draw is not None:
            transport.draw_parameters = functools.partial(journal.draw, draw)
        try:
            transport.reset(env_ids, seeds, options)
        finally:
            if draw is not None:
                transport.draw_parameters = draw
        journal.reset_asked(envs, seeds, options)
