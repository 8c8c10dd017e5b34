"""Stepper: takes all envs of a transport through steps and episodes, in the wire's arrays.

A step is `ask`, then `receive`, then `begin_again` for those envs that have finished. No library of trainers is known
here: what a user sees of the arrays, and which env begins when, is said by the env class that owns the stepper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.episodes import CutOff, begin_episodes, start_episodes
from ue_rl.envs.masks import Masks
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.calls.parameters import drawer_of
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Envs, Options, Seeds, Transport
from ue_rl.system.errors import ConfigurationError, UnexpectedMessage

Bools = NDArray[np.bool_]


class Stepper:
    """See the module's docstring.

    Args:
        transport: connected here if it is not yet.
        ahead: ask the engine to begin the next episodes by itself, where it can (FEATURES=AUTORESET). Not where
            episodes are also cut off on this side: the engine would begin those that end in one step in two goes.

    Attributes:
        transport: who is asked; another one may be put around it between two steps.
        spec: of the session.
        masks: what is legal in the observations that came last; None where the engine sends no masks, and with agents,
            whose masks differ from group to group.
        steps: how many were asked for.

    Raises:
        ConfigurationError: it is no transport. Also what transport.connect() raises.
    """

    def __init__(self, transport: Transport, *, ahead: bool = False) -> None:
        self.transport = transport
        self.spec = connected(transport)
        self.masks = None if self.spec.groups else Masks.of(self.spec)
        self.steps = 0
        self._cut = CutOff()
        self._behind: set[int] = set()  # envs that have not taken the step that the others have taken
        self._asks_ahead: bool = ahead and getattr(transport, "asks_ahead", False)
        self._not_asked: set[int] = set()  # envs whose next reset has not been asked ahead
        self._drawn_by: Any = None  # the transport's `draw_parameters` when that was asked

    # -- episodes

    def start(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, over: Sequence[int] = ()
    ) -> StepBuffers:
        """Begins an episode in each of these envs (None: all). A step that was sent and not waited for is dropped.

        Args:
            seeds, options: see Transport.reset; left out where the engine takes none.
            over: envs whose episode had ended before, so that the loss of their engine is no news.

        Returns:
            the transport's buffers; envs that were not asked and whose engine was lost end with the next step.
        """
        self._behind.clear()
        buffers = start_episodes(self.transport, env_ids, seeds, options)
        begun = range(self.spec.num_envs) if env_ids is None else env_ids
        self._cut.forget(begun)
        if buffers.lost:
            self._cut.keep(buffers)
            self._cut.forget(over)
        if self.masks is not None:
            self.masks.take(buffers)
        if self._asks_ahead:
            self._not_asked.update(begun)
        return buffers

    def begin_again(
        self, finished: Sequence[int], also_cut: bool = False
    ) -> Iterator[tuple[StepBuffers, Sequence[int], list[int]]]:
        """Resets envs whose episode has ended: as a rule in one round trip, in more where an engine is lost meanwhile.

        Args:
            also_cut: envs that are not in `finished`, and whose episode ends because their engine is lost now, begin
                one, too.

        Yields:
            after each round trip: the transport's buffers, the envs that have begun with it, and those that were not
            asked and whose episode is over.
        """
        for buffers, begun, cut in begin_episodes(self.transport, finished, also_cut=also_cut):
            self._behind.difference_update(begun)
            if self.masks is not None:
                self.masks.put(buffers, begun)
            if self._asks_ahead:
                self._not_asked.update(begun)
            yield buffers, begun, cut

    # -- steps

    def ask(self, rows: NDArray[np.float32]) -> None:
        """Asks all envs for a step; `receive` follows.

        Args:
            rows: the wire's actions, float32 [num_rows, act_size].

        Raises:
            UnexpectedMessage: some envs are ahead of the others, see `ask_some`. Also what Transport.send_actions
                raises.
        """
        if self.masks is not None:
            self.masks.check(rows)
        if self._behind:
            raise broken_off()
        if self._asks_ahead and (self._not_asked or self.transport.draw_parameters is not self._drawn_by):
            self._ask_ahead()  # before the actions: it is only noted here, and goes with the request that they are
        # Envs whose engine was lost while others were reset begin instead of stepping; none after a reset of all.
        self.transport.send_actions(rows, self._cut.envs or None)
        self.steps += 1

    def ask_or_begin(self, rows: NDArray[np.float32], begin: Bools) -> None:
        """As `ask`, but envs in `begin`, bool [num_envs], begin an episode instead, in the same round trip."""
        if self.masks is not None:
            self.masks.check(rows, begin)
        if self._behind:
            raise broken_off()
        resets = np.flatnonzero(begin).tolist()
        self.transport.send_actions(rows, [*resets, *self._cut.envs])
        self.steps += 1

    def ask_some(self, rows: NDArray[np.float32], stepping: Bools) -> None:
        """Asks the envs in `stepping`, bool [num_envs], for a step; the others stay where they are.

        Until they have taken it, too, or have begun another episode, `ask` is refused. `start` drops what was left.
        """
        resting = np.flatnonzero(~stepping).tolist()
        if self.masks is not None:
            self.masks.check(rows, ~stepping)
        if self._asks_ahead and not self._behind:
            self._ask_ahead()
        self.transport.send_actions(rows, resting=resting)
        if self._behind:
            self._behind.intersection_update(resting)
        else:
            self._behind = set(resting)
            self.steps += 1

    def receive(self) -> StepBuffers:
        """The answers to what was asked last, in the transport's buffers; raises what Transport.receive raises."""
        buffers = self.transport.receive()
        if self._cut.envs:
            self._cut.tell(buffers)
        if self.masks is not None:
            self.masks.take(buffers)
        return buffers

    def _ask_ahead(self) -> None:
        """Asks ahead for the next reset of each env for which that has not happened, as far as it is known by now.

        Nothing is used up by that: when an episode has ended its reset is asked for as ever, and where another seed or
        other parameters go with it, because a curriculum is a lesson further, the engine begins once more.

        As long as it is not known of one env, none is asked: of two episodes that end in one step the engine begins the
        one that was asked ahead first, whichever env comes first. A game without seeds may draw both from one
        generator, and they would be other episodes than without this.
        """
        transport: Any = self.transport
        if transport.draw_parameters is not self._drawn_by:  # somebody else draws now: other parameters than were asked
            self._drawn_by = transport.draw_parameters
            self._not_asked.update(range(self.spec.num_envs))
        if not self._not_asked:
            return
        next_seeds = getattr(transport, "next_seeds", _no_seeds)
        parameters: dict[int, Mapping[str, float]] | None = None
        if transport.draw_parameters is not None:
            peek = getattr(drawer_of(transport), "peek", _unknown)
            has_no_seeds = next_seeds([]) is None
            parameters = {}
            for env in self._not_asked:
                values = peek(env, has_no_seeds)
                if values is None:
                    return
                parameters[env] = values
        envs = sorted(self._not_asked)
        self._not_asked.clear()
        transport.ask_ahead(envs, next_seeds(envs), parameters)


def connected(transport: Transport) -> EnvSpec:
    """What the engine of `transport` says of itself; connects it, where that has not happened yet.

    Raises:
        ConfigurationError: it is no transport. Also what transport.connect() raises.
    """
    if not callable(getattr(transport, "connect", None)):
        raise ConfigurationError(
            "an env class takes a connection, not an address",
            field="transport",
            expected="a Transport",
            got=transport,
            cure="ue_rl.connect(url) opens one for Stable-Baselines3, gymnasium.make('ue_rl/Engine-v0', url=..) and "
            "gymnasium.make_vec(..) for Gymnasium, ue_rl.connections.open_engine(host, port) any",
        )
    return transport.connect()


def broken_off() -> UnexpectedMessage:
    """The error for a step while some envs are ahead of the others."""
    return UnexpectedMessage(
        "half of the envs are in the middle of a step that was broken off",
        fault="caller",
        field="actions",
        expected="those that the first half was sent, or a reset",
        cure="call reset() first",
    )


def _no_seeds(envs: Sequence[int]) -> None:
    """Of a transport that gives episodes no seeds of its own."""


def _unknown(env: int, certain: bool) -> None:
    """Of who cannot say what will be drawn."""
