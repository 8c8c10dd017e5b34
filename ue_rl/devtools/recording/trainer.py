"""replay_trainer: asks an engine what was recorded, and says where it answers otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.recording.game import departure
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.calls import write_refused
from ue_rl.protocol.traces.file import PLAYED, MessageKind, TraceMessage, rows_of
from ue_rl.protocol.traces.reading import Trace
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import CommandFailed, ReplayInvalid

_WORDS = {"obs": "OBS", "rewards": "REW", "dones": "DONE", "truncated": "TRUNC", "masks": "MASK", "image": "IMAGE"}
_SIZES = ("obs_size", "act_size", "num_envs", "env_type", "action", "obs_space", "groups", "image", "mask_size")


class ReplayCounts(NamedTuple):
    """What was compared."""

    messages: int
    env_steps: int
    resets: int


def replay_trainer(trace: Trace, transport: Transport) -> ReplayCounts:
    """Plays the trainer of the first session of `trace`; an engine that answers as recorded passes.

    Args:
        transport: connected or not; the caller closes it.

    Raises:
        ReplayInvalid: the first difference: env, step, field, expected, got; or the beginning was dropped.
    """
    trace.require_side(*PLAYED)
    if not trace.begins:
        raise ReplayInvalid("the beginning of this trace was dropped, so it cannot be played", field="file")
    _check_spec(trace.spec, transport.connect())
    player = _Trainer(trace.spec, transport)
    count = sessions = 0
    for message in trace:
        sessions += message.kind is MessageKind.SESSION
        if sessions > 1:
            break
        player.play(message)
        count += 1
    return ReplayCounts(count, sum(player.steps), player.resets)


def _check_spec(before: EnvSpec, now: EnvSpec) -> None:
    for name in _SIZES:
        if getattr(before, name) != getattr(now, name):
            raise departure("the engine", "in its handshake", None, name, getattr(before, name), getattr(now, name))


class _Trainer:
    def __init__(self, spec: EnvSpec, transport: Transport) -> None:
        self._spec = spec
        self._transport = transport
        self.steps = [0] * spec.num_envs
        self.resets = 0
        self._actions = np.zeros((spec.num_rows, spec.act_size), np.float32)
        self._step: set[int] = set()
        self._reset: dict[int, tuple[Any, Any, Any]] = {}  # seed, options, parameters
        self._came: dict[int, dict[str, NDArray[Any]]] = {}  # the answers that were not compared yet
        self._infos: dict[int, Any] = {}
        self._first: set[int] = set()  # envs whose answer is that to a reset
        self._line = ""

    def play(self, message: TraceMessage) -> None:
        """Asks, or compares."""
        facts = message.facts
        if message.kind in (MessageKind.STEP, MessageKind.ASK):
            envs = range(self._spec.num_envs) if message.envs is None else message.envs.tolist()
            self._actions[rows_of(envs, self._spec)] = message.arrays["actions"]
            self._step.update(envs)
            for at, env in enumerate(facts.get("resets", ())):
                many = (facts.get(name) or [None] * (at + 1) for name in ("seeds", "options", "parameters"))
                seed, options, parameters = (values[at] for values in many)
                self._reset[int(env)] = seed, options, parameters
        elif message.kind in (MessageKind.ANSWER, MessageKind.PART):
            envs = list(range(self._spec.num_envs) if message.envs is None else message.envs.tolist())
            if not self._came.keys() >= set(envs):
                self._ask()
            for at, env in enumerate(envs):
                self._compare(env, at, message)
        elif message.kind is MessageKind.CALL:
            self._line = str(facts.get("line"))
        elif message.kind is MessageKind.REPLY:
            self._call(str(facts.get("line")))

    def _ask(self) -> None:
        """What was asked since the last answers, and waits for all of it."""
        resets = self._reset
        self._reset = {}
        steps = self._step
        self._step = set()
        self.resets += len(resets)
        told = any(seed is not None or options is not None for seed, options, _ in resets.values())
        if resets and (told or not steps):
            envs = sorted(resets)
            seeds, options, parameters = (list(each) for each in zip(*(resets[env] for env in envs), strict=True))
            some = {env: values for env, values in zip(envs, parameters, strict=True) if values}
            own_seeds = None
            if any(seed is not None for seed in seeds):
                own_seeds = seeds
            own_options = None
            if any(options):
                own_options = options
            self._transport.reset(
                envs,
                own_seeds,
                own_options,
                some or None,
            )
            self._take(envs, envs)
            resets = {}
        if steps:
            begin = sorted(resets)
            resting = [env for env in range(self._spec.num_envs) if env not in steps and env not in resets]
            some = {env: resets[env][2] for env in begin if resets[env][2]}
            begun = None
            if begin:
                begun = begin
            self._transport.send_actions(self._actions, begun, some or None, resting)
            self._take([*sorted(steps), *begin], begin)

    def _take(self, envs: Sequence[int], begun: Sequence[int]) -> None:
        buffers = self._transport.receive()
        names = [name for name in (*_WORDS, "present") if getattr(buffers, name) is not None]
        for env in envs:
            rows = rows_of([env], self._spec)
            self._came[env] = {name: getattr(buffers, name)[rows] for name in names}
        self._infos = dict(buffers.infos)
        self._first.difference_update(envs)
        self._first.update(begun)

    def _compare(self, env: int, at: int, message: TraceMessage) -> None:
        agents = self._spec.agents_per_env
        mine = self._came.pop(env, None)
        if mine is None:
            raise ReplayInvalid("the trace has an answer that nobody asked for", field="file", env_id=env)
        first = env in self._first
        self.steps[env] += not first
        if first:
            when = f"at the reset behind step {self.steps[env]}"
        else:
            when = f"at step {self.steps[env]}"
        theirs = {name: array[at * agents : (at + 1) * agents] for name, array in message.arrays.items()}
        there = theirs.get("present", np.ones(agents, np.uint8)) != 0
        for name, array in theirs.items():
            if first and name in ("rewards", "dones", "truncated"):  # they mean nothing
                continue
            a = array[there].reshape(int(there.sum()), -1)
            b = mine[name][there].reshape(int(there.sum()), -1)
            if a.tobytes() != b.tobytes():
                # 0.0 and -0.0 differ in their bytes
                if (a != b).any():
                    row, k = np.argwhere(a != b)[0]
                else:
                    row = 0
                    k = 0
                if a.shape[1] > 1 or name == "obs":
                    field = f"{_WORDS.get(name, name)}[{k}]"
                else:
                    field = _WORDS.get(name, name)
                raise departure("the engine", when, env, field, a[row, k].item(), b[row, k].item())
        infos = message.facts.get("infos") or {}
        for agent in range(agents):
            row = env * agents + agent
            if infos.get(str(row)) != self._infos.get(row):
                raise departure("the engine", when, env, "INFO", infos.get(str(row)), self._infos.get(row))

    def _call(self, recorded: str) -> None:
        try:
            answer = self._transport.call(self._line)
        except CommandFailed as error:
            reason = error.got or error.message
            answer = write_refused(str(reason))
        if answer.strip() != recorded.strip():
            raise departure("the engine", f"in its answer to {self._line[:80]}", None, "call", recorded, answer)
