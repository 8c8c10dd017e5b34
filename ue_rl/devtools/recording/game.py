"""ReplayedGame: an engine that answers as it was recorded, and says where its trainer departs from that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.game import EnvIds, PerEnv
from ue_rl.protocol.traces.file import AHEAD, PLAYED, MessageKind, TraceMessage
from ue_rl.protocol.traces.reading import Trace
from ue_rl.system.errors import ReplayInvalid, printable

_AHEAD = 100_000  # requests of an env that may be recorded before the next one of another


class _Event(NamedTuple):
    """What one env was asked, and how it answered."""

    action: NDArray[np.float32] | None  # [agents, act_size]; None: a reset
    told: dict[str, Any]  # seed, options, parameters
    arrays: dict[str, NDArray[Any]]  # [agents, ..]
    infos: dict[int, Any]  # by agent


class ReplayedGame(BaseBridge):
    """Each env answers its own requests in the order in which they were recorded, however the trainer groups them.

    A trainer that goes begins anew: the next one is answered like the next of the recording's trainers, or the first.

    Args:
        trace: from its beginning. departed: told of the first difference of each session.

    Raises:
        ReplayInvalid: the beginning of the trace was dropped.
    """

    together = True

    def __init__(self, trace: Trace, departed: Callable[[ReplayInvalid], object] = lambda error: None) -> None:
        trace.require_side(*PLAYED)
        if not trace.begins:
            raise ReplayInvalid(
                "the beginning of this trace was dropped, so it cannot be played",
                field="file",
                got=str(trace.path),
                cure="record with a larger --trace-size; ue-rl trace show FILE shows what there is",
            )
        self._trace = trace
        self._departed = departed
        self._messages: Iterator[TraceMessage] = iter(())
        self._used = self._over = False
        # Whoever plays asks for each reset: what follows one that was begun ahead says whether it was taken.
        super().__init__(replace(trace.spec, shm=None, features=trace.spec.features - {"AUTORESET", "BINARY"}))

    def configure(self, spec: Any) -> None:
        """See BaseBridge."""
        super().configure(spec)
        self._begin_anew()

    def offered(self) -> frozenset[str]:
        """What the recorded engine offered stands in its handshake."""
        return frozenset()

    # -- for the driver

    def begin_in(self, envs: EnvIds, seeds: PerEnv, options: PerEnv) -> None:
        """See Game."""
        for env, seed, given in zip(envs.tolist(), seeds, options, strict=True):
            event = self._next(env, "a reset")
            waiting = self._waiting[env]
            if event.told.get(AHEAD) and self._read_for(env) and waiting[0].action is None:
                event = waiting.popleft()  # it was reset otherwise
            if event.action is not None:
                raise self._differs(env, "ACT", "a step", "a reset")
            given_options = None
            if given:
                given_options = given
            parameters = self._set.pop(env, None)
            if not parameters:
                parameters = None
            told = {"seed": seed, "options": given_options, "parameters": parameters}
            for name, value in told.items():
                if (event.told.get(name) or None if name != "seed" else event.told.get(name)) != value:
                    raise self._differs(env, name.upper(), event.told.get(name), value)
            self._write(env, event, ("obs", "masks", "present", "image"))

    def act_in(self, envs: EnvIds, actions: NDArray[np.float32]) -> None:
        """See Game."""
        agents = self.spec.agents_per_env
        for env in envs.tolist():
            event = self._next(env, "a step")
            given = actions[env * agents : (env + 1) * agents]
            if event.action is None:
                raise self._differs(env, "ACT", "a reset", "a step")
            for agent in range(agents):
                if agents > 1 and not self.lockstep.roster.live[env, agent]:
                    continue
                if event.action[agent].tobytes() != given[agent].tobytes():
                    at = int((event.action[agent] != given[agent]).argmax())
                    raise self._differs(env, f"ACT[{at}]", float(event.action[agent, at]), float(given[agent, at]))
            self._write(env, event, event.arrays)
            self._steps[env] += 1

    def session_ends(self) -> None:
        """See Game."""
        if self._used:
            self._begin_anew()

    # -- what the recorded engine offered

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """See ListsParameters."""
        return {each.name: (each.value, each.low, each.high) for each in self.spec.parameters}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """See SetsParameters: of a reset that follows."""
        self._set.setdefault(env_id, {})[name] = value

    def answer_line(self, line: str) -> str:
        """See AnswersCalls."""
        self._used = True
        if not self._calls and not self._read(lambda: bool(self._calls)):
            raise self._differs(None, "call", "no further call", line)
        asked, answer = self._calls.popleft()
        if asked.strip() != line.strip():
            raise self._differs(None, "call", asked, line)
        return answer

    # -- reading

    def _begin_anew(self) -> None:
        n = self.spec.num_envs
        if not self._over and not any(
            message.kind is MessageKind.SESSION for message in self._messages
        ):  # skip what is left
            self._messages = iter(self._trace)
        self._waiting: list[deque[_Event]] = [deque() for _ in range(n)]
        self._open: dict[int, tuple[NDArray[np.float32] | None, dict[str, Any]]] = {}
        self._calls: deque[tuple[str, str]] = deque()
        self._line = ""
        self._set: dict[int, dict[str, float]] = {}
        self._steps = [0] * n
        self._used = self._over = self._done = False  # `_over`: the next session is where we stand
        self._seen = 0

    def _next(self, env: int, asked: str) -> _Event:
        self._used = True
        waiting = self._waiting[env]
        if not self._read_for(env):
            raise self._differs(env, "ACT", "nothing: the recording ends here", asked)
        return waiting.popleft()

    def _read_for(self, env: int) -> bool:
        """Reads on until something of this env waits; whether it does."""
        return bool(self._waiting[env]) or self._read(lambda: bool(self._waiting[env]))

    def _read(self, enough: Callable[[], bool]) -> bool:
        """Reads on in this session until there is enough; whether there is."""
        while not self._done and not enough():
            message = next(self._messages, None)
            if message is None or (message.kind is MessageKind.SESSION and self._seen):
                self._over = message is not None
                self._done = True
                break
            self._seen += message.kind is not MessageKind.SESSION
            if message.kind in (MessageKind.STEP, MessageKind.ASK):
                self._take_request(message)
            elif message.kind in (MessageKind.ANSWER, MessageKind.PART):
                self._take_answer(message)
            elif message.kind is MessageKind.CALL:
                self._line = str(message.facts.get("line"))
            elif message.kind is MessageKind.REPLY:
                self._calls.append((self._line, str(message.facts.get("line"))))
        return enough()

    def _take_request(self, message: TraceMessage) -> None:
        agents = self.spec.agents_per_env
        actions = message.arrays["actions"]
        facts = message.facts
        if message.envs is None:
            envs = range(self.spec.num_envs)
        else:
            envs = message.envs.tolist()
        for at, env in enumerate(envs):
            self._open[env] = actions[at * agents : (at + 1) * agents], {}
        names = {"seeds": "seed", "options": "options", "parameters": "parameters", AHEAD: AHEAD}
        for at, env in enumerate(facts.get("resets", ())):
            self._open[int(env)] = None, {one: facts[many][at] for many, one in names.items() if facts.get(many)}

    def _take_answer(self, message: TraceMessage) -> None:
        agents = self.spec.agents_per_env
        infos = message.facts.get("infos") or {}
        if message.envs is None:
            envs = range(self.spec.num_envs)
        else:
            envs = message.envs.tolist()
        for at, env in enumerate(envs):
            action, told = self._open.pop(env, (None, {}))
            rows = {name: array[at * agents : (at + 1) * agents] for name, array in message.arrays.items()}
            mine = {agent: infos[key] for agent in range(agents) if (key := str(env * agents + agent)) in infos}
            self._waiting[env].append(_Event(action, told, rows, mine))
            if len(self._waiting[env]) > _AHEAD:
                raise self._differs(env, "ACT", f"more than {_AHEAD} requests before those of others", "none of them")

    def _write(self, env: int, event: _Event, names: Any) -> None:
        agents = self.spec.agents_per_env
        out = self.outbox
        rows = slice(env * agents, (env + 1) * agents)
        for name in names:
            if name in event.arrays:
                getattr(out, name)[rows] = event.arrays[name]
        for agent, info in event.infos.items():
            self.write_info(env * agents + agent, info)

    def _differs(self, env: int | None, field: str, expected: Any, got: Any) -> ReplayInvalid:
        at = "between two steps"
        if env is not None:
            at = f"at step {self._steps[env]}"
        error = departure("the trainer", at, env, field, expected, got)
        self._departed(error)
        return error


def departure(who: str, at: str, env: int | None, field: str, expected: Any, got: Any) -> ReplayInvalid:
    """The first difference between a recording and what happens now."""
    said = (printable(f"{value:.9g}" if isinstance(value, float) else str(value))[:200] for value in (expected, got))
    shown, seen = said
    fault = "trainer"
    if who == "the engine":
        fault = "engine"
    return ReplayInvalid(
        f"{who} departs from the recording {at}",
        env_id=env,
        field=field,
        expected=shown,
        got=seen,
        fault=fault,
    )
