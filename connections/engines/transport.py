"""EnginesTransport: several engines as one connection, each of which may be lost and come back.

Env ids count over the engines: engine 0 has the first ones. All engines are asked before any answer is awaited, so a
step of all takes as long as that of the slowest.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.base.checks import check_actions, check_finite
from ue_rl.connections.engines.asking import Drawn, ResetOf, check_owed, split_resets, too_late
from ue_rl.connections.engines.batched import BatchedEngines
from ue_rl.connections.engines.calling import Asked, answer_of
from ue_rl.connections.engines.lifecycle import Life, Listener
from ue_rl.connections.engines.merging import merged, merged_facts
from ue_rl.connections.engines.opening import open_together
from ue_rl.connections.engines.part import SURVIVABLE, EngineFacts, EnginePart
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.source import EngineSource
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Draw, Options, Params, Seeds
from ue_rl.system.errors import ConfigurationError, ConnectionUnusable, EngineTimeout, UeRlError
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections.engines")

_LATE = 0.5  # seconds for the others, once an engine was waited for in vain: they have had as much time as it


class EnginesTransport(BaseTransport):
    """See the module's docstring; StepBuffers.lost says what becomes of the envs of an engine that is lost.

    Args:
        sources: where each engine comes from; one at least.
        restarts: how often an engine may be lost; None: the first failure ends the connection.
        on_change: called at each change of an engine's life, in the trainer's thread; what it raises ends the run.
        timing: of the pauses before an engine is started again, and of how long it has played.

    Attributes:
        lives: of each engine, see ue_rl.connections.engines.lifecycle. restarts: as given.
        engine_envs: the env ids of each engine; after connect().

    Raises:
        ConfigurationError: no sources.
    """

    carries = "several engines"

    def __init__(
        self,
        sources: Sequence[EngineSource],
        *,
        restarts: Restarts | None = None,
        on_change: Listener | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        if not sources:
            raise ConfigurationError("there must be one engine at least", field="sources", expected="a list", got="[]")
        self._parts = [
            EnginePart(number, source, restarts, on_change, len(sources) == 1, timing)
            for number, source in enumerate(sources)
        ]
        self._owed: set[int] = set()  # envs that were lost and have not begun an episode since
        self._unanswered = Drawn()
        self._asked: list[EnginePart] = []
        self._stepping = self._whole = self._some_lost = self._some_over = self._at_once = False
        self._once = BatchedEngines()
        self.restarts = restarts
        super().__init__()
        self.lives: list[Life] = [part.life for part in self._parts]

    @property
    def engine_envs(self) -> list[range]:
        """See the class."""
        return [part.envs for part in self._parts]

    @property
    def engines(self) -> list[EngineFacts]:
        """Each engine now, for people."""
        return [part.facts for part in self._parts]

    @property
    def awaited_rows(self) -> int:
        """See BaseTransport; of an engine that is lost nothing is awaited."""
        if self._at_once:  # all engines were asked in one go, behind the backs of their transports
            return self._shape[0]
        return sum(part.transport.awaited_rows for part in self._parts if part.transport is not None)

    def latencies(self, engine: int) -> NDArray[np.float64]:
        """Seconds from a step's request to this engine's answer, of its last 1024 steps, oldest first."""
        self._once.part_ways(self._parts)
        return self._parts[engine].latencies()

    # -- opening

    def _open(self) -> EnvSpec:
        for part in self._parts:
            part.start()
        for part in self._parts:
            part.open()
        spec = merged([part.spec for part in self._parts], [part.source.name for part in self._parts])
        self.buffers = StepBuffers.of(spec)
        at = 0
        for part in self._parts:
            part.place(at, spec.agents_per_env, self.buffers)
            at += part.spec.num_envs
        self.handshake = spec.text
        self._some_act = bool(spec.groups)
        self._several = len(self._parts) > 1
        self._shape = spec.num_rows, spec.act_size
        self._rows = [(part, part.rows) for part in self._parts]
        return spec

    def _drawn(self, envs: Sequence[int], draw: Draw) -> Mapping[int, Mapping[str, float] | None]:
        return self._unanswered.draw(envs, draw)

    def _resets(self, env_ids: Sequence[int] | None, seeds: Seeds, options: Options, parameters: Params) -> Resets:
        resets = super()._resets(env_ids, seeds, options, parameters)
        if resets.parameters is not None:
            if env_ids is not None:
                envs = env_ids
            else:
                envs = range(self.spec.num_envs)
            self._unanswered.note(envs, resets.parameters)
        return resets

    # -- requests

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        if resets is None and not self._some_lost and not self._some_act:
            self._ask_all(actions)
            return
        self._once.part_ways(self._parts)
        if resets is None:
            self._check_step(actions, ())
        self._stepping = True
        self._whole = False
        self._asked = []
        self._since = perf_counter()
        self.buffers.lost.clear()
        wanted = {}
        if resets is not None:
            wanted = {entry[0]: entry for entry in split_resets(resets, self._parts)}
            resting_envs = resets.resting
        else:
            resting_envs = ()
        resting = frozenset(resting_envs)
        down: list[ResetOf] = []
        for part in self._parts:
            rest = []
            if resting:
                rest = [env - part.envs.start for env in part.envs if env in resting]
            if rest:
                part.asked = [env for env in part.envs if env not in resting]
            else:
                part.asked = None
            if part.asked is not None and not part.asked:
                continue
            if part.transport is not None:
                _, mine, _, _, parameters = wanted.get(part, (part, None, None, None, None))
                step = functools.partial(part.transport.send_actions, actions[part.rows], mine, parameters, rest)
                self._request(part, step)
            elif part.news is None:  # the caller knows; those of its envs that are asked begin, or it was refused
                down.append(wanted[part])
        self._begin_again(down)

    def _ask_all(self, actions: NDArray[np.float32]) -> None:
        """The usual step: in one go where that can be, else engine by engine."""
        once = self._once
        if not once.joined:
            once.join(self._parts, self.buffers)
        self._since = perf_counter()
        left = None
        if once.together is not None:
            left = once.together.ask(actions, once.again)
        if left is None:
            self._once.part_ways(self._parts)
            self._ask_each(actions)
            return
        self._stepping = True
        self._whole = True
        self._asked = self._parts
        self._at_once = not left
        if self.buffers.lost:
            self.buffers.lost.clear()
        if left:
            self._go_apart(left)

    def _go_apart(self, left: Sequence[bytes]) -> None:
        """What was asked in one go is answered engine by engine."""
        self._once.part_ways(self._parts)
        self._asked = []
        for part, rest in zip(self._parts, left, strict=True):
            assert part.transport is not None
            part.asked = None
            self._request(part, functools.partial(part.transport.was_asked, rest))
        self._whole = len(self._asked) == len(self._parts)

    def _ask_each(self, actions: NDArray[np.float32]) -> None:
        """Every connection checks its own rows; here only what would be found too late."""
        if self._several:
            if getattr(actions, "shape", None) != self._shape:
                check_actions(self.spec, actions)
            if not math.isfinite(np.vdot(actions, actions)):
                check_finite(self.spec, actions)
        asked: list[EnginePart] = []
        self._stepping = True
        self._whole = True
        self._asked = asked
        if self.buffers.lost:
            self.buffers.lost.clear()
        self._since = perf_counter()
        for part, rows in self._rows:
            try:
                part.transport.send_actions(actions[rows])  # type: ignore[union-attr]
            except SURVIVABLE as error:
                self._whole = False
                self._lose(part, error)
            except UeRlError as error:
                check_actions(self.spec, actions)  # says it of all rows
                raise self._half_asked(error) from error
            else:
                asked.append(part)
        if not self._whole:
            for part in asked:
                part.asked = None

    def _check_step(self, actions: NDArray[np.float32], begin: Sequence[int]) -> None:
        """What one engine's connection would refuse after others had been asked."""
        super()._check_step(actions, begin)
        if self._owed:
            check_owed(self._owed, begin, self._parts)

    def _ask_resets(self, resets: Resets) -> None:
        self._once.part_ways(self._parts)
        self._stepping = False
        self._whole = False
        self._asked = []
        self.buffers.lost.clear()
        wanted = split_resets(resets, self._parts)
        down = [entry for entry in wanted if entry[0].transport is None]
        self._reset(wanted)
        self._begin_again(down)

    @property
    def asks_ahead(self) -> bool:
        """See Carrier.asks_ahead. Not with several engines: they are asked and read in one go."""
        transport = self._parts[0].transport
        return not self._several and transport is not None and transport.asks_ahead

    def ask_ahead(self, env_ids: Sequence[int], seeds: Seeds = None, parameters: Params = None) -> None:
        """See BaseTransport.ask_ahead; an engine that is away is asked for each reset."""
        if self.asks_ahead:
            part = self._parts[0]
            assert part.transport is not None
            self._surviving(part, functools.partial(part.transport.ask_ahead, env_ids, seeds, parameters))

    def _reset(self, wanted: Sequence[ResetOf]) -> None:
        """Asks those of these engines that are there."""
        for part, env_ids, seeds, options, parameters in wanted:
            if part.transport is not None:
                if env_ids is None:
                    part.asked = None
                else:
                    part.asked = [env + part.envs.start for env in env_ids]
                self._request(part, functools.partial(part.transport.reset, env_ids, seeds, options, parameters))

    def _request(self, part: EnginePart, send: Callable[[], object]) -> None:
        try:
            send()
        except SURVIVABLE as error:
            self._lose(part, error)
        except UeRlError as error:
            raise self._half_asked(error) from error
        else:
            self._asked.append(part)

    def _half_asked(self, error: UeRlError) -> UeRlError:
        """A caller's mistake that this engine's connection found; once others were asked there is no way back."""
        if self._asked:
            return too_late(error)
        return error

    # -- answers

    def _collect(self) -> None:
        if self._at_once:
            once = self._once
            self._at_once = False
            assert once.together is not None
            took = once.together.collect()
            if took is not None:
                once.again = True
                once.took.append(took)
                self._note_episodes()
                return
            self._go_apart([b""] * len(self._parts))
        if self._whole:
            self._collect_all()
        else:
            self._collect_some()
        if self._some_lost:
            self._tell_lost()
        self._note_episodes()

    def _collect_all(self) -> None:
        """The answers to the usual step."""
        since = self._since
        infos = self.buffers.infos
        late = False
        for part in self._asked:
            transport = part.transport
            try:
                answer = part.receive(_LATE) if late else transport.receive()  # type: ignore[union-attr]
            except SURVIVABLE as error:
                late = late or isinstance(error, EngineTimeout)
                self._lose(part, error)
                continue
            part.answered_after.append(perf_counter() - since)
            for into, source in part.copies:
                into[...] = source
            if answer.infos:
                first = part.rows.start
                infos.update({row + first: info for row, info in answer.infos.items()})

    def _collect_some(self) -> None:
        late = False
        owed = self._owed
        for part in self._asked:
            assert part.transport is not None
            try:
                if late:
                    patience = _LATE
                else:
                    patience = None
                part.receive(patience)
            except SURVIVABLE as error:
                late = late or isinstance(error, EngineTimeout)
                self._lose(part, error)
                continue
            if self._stepping:
                part.answered_after.append(perf_counter() - self._since)
            if owed:
                envs = part.envs if part.asked is None else part.asked
                due = None
                if part.asked is not None:
                    due = envs
                part.take(due)
                owed.difference_update(envs)
            else:
                part.take(None)
            self._unanswered.answered(part.envs if part.asked is None else part.asked)

    def _tell_lost(self) -> None:
        """Writes the rows of envs whose engine was lost; their observations stand there as they were."""
        for part in self._parts:
            if part.news is not None:
                part.tell([env for env in part.envs if env in self._owed])
        self._some_lost = bool(self._owed)

    def _note_episodes(self) -> None:
        if not self._stepping:
            for part in self._asked:
                if part.transport is not None:
                    part.life.episode(over=False)
            return
        over = 1 in self.buffers.dones.tobytes()
        if over or self._some_over:
            self._some_over = over
            for part in self._asked:
                if part.transport is not None:
                    part.life.episode(over=over and 1 in self.buffers.dones[part.rows].tobytes())

    # -- engines that come and go

    def _lose(self, part: EnginePart, error: UeRlError) -> None:
        """Raises what ends the connection; otherwise the engine's envs are owed a reset."""
        if self._session.ended:  # by another thread: nothing was lost
            raise error
        self._once.part_ways(self._parts)
        self._once.together = None
        self._once.joined = False
        part.lose(error)
        self._owed.update(part.envs)
        self._some_lost = True
        _log.warning("%s. Its episodes end as truncated, and it is %s", part.told, part.comes_back)

    def _begin_again(self, down: Sequence[ResetOf]) -> None:
        """Opens lost engines again, all at the same time, and resets them; one that fails is lost again."""
        if not down:
            return
        began = time.monotonic()
        started = [entry[0] for entry in down if self._surviving(entry[0], entry[0].start)]
        for part, opened in zip(started, open_together(started), strict=True):
            if self._surviving(part, opened.result):
                _log.info("engine %d is back after %.1f s", part.number, time.monotonic() - began)
        self._reset(down)

    def _surviving(self, part: EnginePart, do: Callable[[], None]) -> bool:
        try:
            do()
        except ConnectionUnusable:
            raise
        except SURVIVABLE as error:
            self._lose(part, error)
            return False
        return True

    # -- calls

    def _answer(self, line: str) -> str:
        """One that names no env goes to every engine, but for what env 0 or any engine can answer.

        What was set so (parameters, time scale, pause) is set again in an engine that is started again.

        Raises:
            CommandFailed: also where the engine that is asked was lost, or is lost now; the connection goes on.
        """
        return answer_of(Asked.of(line, self.spec.num_envs), self._parts, self._lose)

    @property
    def commands(self) -> Any:
        """See Transport.commands; of one engine alone."""
        if len(self._parts) == 1 and self._parts[0].transport is not None:
            return self._parts[0].transport.commands
        return super().commands

    # -- the end

    def _drop(self) -> None:
        for part in self._parts:
            part.ask_to_close()
        for part in self._parts:
            part.close()

    def describe(self) -> dict[str, str]:
        """See Transport.describe; what differs between the engines is listed."""
        return merged_facts([part.describe() for part in self._parts])
