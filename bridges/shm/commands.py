"""The engine's side of the commands: what a bridge answers by itself, and what it may offer (docs/commands.md).

Every bridge answers PING, CLOSE and GET_SCHEMA and takes RESET_OPTIONS. The others are answered where the game has the
ability: ListsParameters, SetsParameters and so on in bridges/hosting.py.

They run between two ticks, in the host's thread, with the bridge's lock held.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.calls import ALL_ENVS, answer_call, check_env, check_values, known_parameters, lacks
from ue_rl.bridges.hosting import BeginsContracts, GetsParameters, ListsParameters, ScalesTime
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.entries import (
    ENV_INFO,
    FIRST_INFO,
    NEXT_PARAMETERS,
    RESET_OPTIONS,
    RESET_PARAMETERS,
    TextReader,
    check_object,
    is_json,
    is_text,
    json_entry,
    read_json_entry,
    text_entries,
)
from ue_rl.protocol.commands.envelope import Command, Method, messages, text
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.protocol.text.settings import check_parameter, find_parameter
from ue_rl.system.errors import ConfigurationError, MalformedMessage, UnexpectedMessage

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges.shm")

_OF_RESETS = (RESET_OPTIONS, RESET_PARAMETERS, NEXT_PARAMETERS)


@functools.cache
def can_encode() -> bool:
    """Is flatbuffers installed? Where it is not, a game goes on without events, as it does over TCP; warns once."""
    try:
        messages()
    except ConfigurationError as error:
        _log.warning("events of the game are not sent: %s", error)
        return False
    return True


def default_dispatcher(bridge: BaseBridge) -> Dispatcher:
    """The handlers that every host starts with, and those that `bridge.register_commands(dispatcher)` sets."""
    dispatcher = Dispatcher()
    handlers = _Handlers(bridge, dispatcher)
    for method, handler in (
        (Method.PING, handlers.ping),
        (Method.CLOSE, handlers.close),
        (Method.GET_SCHEMA, handlers.schema),
        (Method.LIST_PARAMETERS, handlers.list_parameters),
        (Method.GET_PARAMETERS, handlers.get_parameters),
        (Method.SET_PARAMETERS, handlers.set_parameters),
        (Method.SET_TIME_SCALE, handlers.set_time_scale),
        (Method.RESET_AGENT, handlers.reset_agent),
        (Method.RESET_OPTIONS, handlers.reset_options),
    ):
        dispatcher.register(method, handler)
    bridge.register_commands(dispatcher)
    return dispatcher


def answer_commands(
    memory: StepMemory,
    dispatcher: Dispatcher,
    bridge: BaseBridge,
    write: Callable[[bytes], None],
    texts: TextReader,
    asked: bool,
) -> int:
    """Answers what stands in the ring, one ringful at most: a trainer that never stops asking must not stop the game.

    Args:
        write: sends an answer, waiting for room. texts: this session's, for calls. asked: a request is open.

    Returns:
        how many.

    Raises:
        MalformedMessage, UnknownEnv, SegmentInvalid: a broken message. UnexpectedMessage: a call while a request is
            open. RingFull: the trainer does not read its answers.
    """
    count = taken = 0
    ring = memory.c2s
    while ring is not None and taken < ring.capacity and (data := ring.try_read()) is not None:
        count = count + 1
        taken = taken + len(data)
        if is_text(data):
            if asked:
                raise UnexpectedMessage("a call came while a request was open", fault="trainer", got=data)
            whole = texts.take(data)
            if whole is not None:
                assert memory.s2c is not None
                for entry in text_entries(whole[0], answer_call(bridge, whole[1]), memory.s2c.max_payload):
                    write(entry)
            continue
        with bridge.lock:
            if is_json(data):
                method, row, value = read_json_entry(data, _OF_RESETS, bridge.spec.num_rows)
                if method == NEXT_PARAMETERS:
                    bridge.inbox.ahead[row] = None, value
                else:
                    (bridge.inbox.options if method == RESET_OPTIONS else bridge.inbox.parameters)[row] = value
                continue
            before = bridge.lockstep.caller
            bridge.lockstep.caller = threading.get_ident()
            try:
                answer = dispatcher.answer(data, ring.max_payload)
            except ConfigurationError as error:  # flatbuffers is not installed: the steps need not end for that
                _log.error("a command of the trainer's cannot be read or answered: %s", error)
                continue
            finally:
                bridge.lockstep.caller = before
        if answer is not None:
            write(answer)
    return count


def take_infos(
    memory: StepMemory, bridge: BaseBridge, first: dict[int, dict[str, Any]], was_asked: Callable[[int], bool]
) -> list[bytes]:
    """The infos of the frame that is published next, as messages for the ring; without a ring they are left out.

    Args:
        first: those of episodes that were asked ahead. was_asked: does the frame answer this row? The info of one that
            it does not stays, for the row's next answer.

    Raises:
        ConfigurationError: one is no JSON, or too long for the ring.
    """
    infos = bridge.outbox.infos
    ring = memory.s2c
    now = {row: info for row, info in infos.items() if was_asked(row)}
    for row in now:
        del infos[row]
    told = dict(first)
    first.clear()
    if ring is None:
        return []
    most = ring.max_payload
    return [
        *(json_entry(ENV_INFO, row, info, most) for row, info in now.items()),
        *(json_entry(FIRST_INFO, row, info, most) for row, info in told.items()),
    ]


class _Handlers:
    """One bridge's."""

    def __init__(self, bridge: BaseBridge, dispatcher: Dispatcher) -> None:
        self._bridge = bridge
        self._dispatcher = dispatcher

    def ping(self, payload: Any, command: Command) -> Any:
        return payload

    def close(self, payload: Any, command: Command) -> Any:
        reason = text(payload.reason)
        said = reason
        if not said:
            said = "it does not say why"
        _log.info("the trainer closes: %s", said)
        self._bridge.trainer_closes(reason)

    def schema(self, payload: Any, command: Command) -> Any:
        return messages().SchemaT(
            config=encode_handshake(self._bridge.spec).decode().strip(),
            observationNames=list(self._bridge.observation_names),
            actionNames=list(self._bridge.action_names),
            methods=self._dispatcher.methods,
        )

    def list_parameters(self, payload: Any, command: Command) -> Any:
        return _listed(map(astuple, known_parameters(self._bridge).values()), -1)

    def get_parameters(self, payload: Any, command: Command) -> Any:
        game = self._bridge
        env_id = int(payload.envId)
        known = known_parameters(game)
        names = [find_parameter(known, text(name)).name for name in payload.names or ()] or list(known)
        rows = [astuple(known[name]) for name in names]
        if env_id != -1:
            check_env(game.num_envs, env_id)
            if not isinstance(game, GetsParameters):
                raise lacks("get_parameter")
            rows = [(name, float(game.get_parameter(name, env_id)), low, high) for name, _, low, high in rows]
        return _listed(rows, env_id)

    def set_parameters(self, payload: Any, command: Command) -> Any:
        game: Any = self._bridge
        given = [(text(p.name), float(p.value), int(p.envId)) for p in payload.parameters or ()]
        check_values(game, {})  # it can be set at all
        for name, value, env_id in given:  # all are looked at before the first is set
            where = None
            if env_id != ALL_ENVS:
                where = env_id
            check_values(game, {name: value}, where)
        for name, value, env_id in given:
            game.set_parameter(name, value, env_id)

    def set_time_scale(self, payload: Any, command: Command) -> Any:
        if not 0 < payload.scale < float("inf"):
            raise ConfigurationError("a time scale must be positive and finite", field="scale", got=payload.scale)
        if not isinstance(self._bridge, ScalesTime):
            raise lacks("set_time_scale")
        self._bridge.set_time_scale(float(payload.scale))

    def reset_agent(self, payload: Any, command: Command) -> Any:
        contract = payload.contract
        if contract is None:
            raise MalformedMessage("a contract is missing", fault="trainer", field="contract")
        game = self._bridge
        if not isinstance(game, BeginsContracts):
            raise lacks("begin_contract")
        env_ids = [int(env) for env in (() if payload.envIds is None else payload.envIds)]
        for env in env_ids:
            check_env(self._bridge.num_envs, env)
        parameters = {text(p.name): float(p.value) for p in contract.parameters or ()}
        ranges = {text(r.name): (float(r.low), float(r.high)) for r in contract.randomization or ()}
        for name, (low, high) in ranges.items():
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                what = "a range to draw from must be finite, its low not above its high"
                raise ConfigurationError(what, field=name, got=f"{low} to {high}")
        if isinstance(game, ListsParameters):
            known = known_parameters(game)
            bounds = [(name, bound) for name, pair in ranges.items() for bound in pair]
            for name, value in [*parameters.items(), *bounds]:
                check_parameter(known, name, value)
        if contract.seed < 0:
            seed = None
        else:
            seed = int(contract.seed)
        game.begin_contract(seed, parameters, ranges, env_ids)

    def reset_options(self, payload: Any, command: Command) -> Any:
        row, options = check_object(RESET_OPTIONS, int(payload.envId), payload.json or b"", self._bridge.spec.num_rows)
        self._bridge.inbox.options[row] = options


def _listed(rows: Iterable[tuple[Any, ...]], env_id: int) -> Any:
    m = messages()
    return m.ParametersT(parameters=[m.ParameterT(*row, envId=env_id) for row in rows])
