"""The engine's side of the commands: what a bridge answers by itself, and what it may offer.

Every bridge answers PING and GET_SCHEMA and takes RESET_OPTIONS. The others are answered where it has the method:

    list_parameters() -> {name: (value, low, high)}    set_parameter(name, value, env_id)     env_id -1: all
    set_time_scale(scale)                               begin_contract(seed, parameters, randomization, env_ids)

Handlers of a game's own go into `host.dispatcher.register(method, handler)`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from ue_rl.bridges.base import BaseBridge
from ue_rl.commands import Command, Dispatcher, Method, encode, messages, text, write_within
from ue_rl.errors import MalformedMessage, UnknownEnv, UnsupportedByEngine
from ue_rl.handshake import encode_handshake
from ue_rl.shm import StepMemory


def default_dispatcher(bridge: BaseBridge) -> Dispatcher:
    """The handlers that every host starts with."""
    dispatcher = Dispatcher()
    handlers = _Handlers(bridge, dispatcher)
    for method, handler in (
        (Method.PING, handlers.ping),
        (Method.CLOSE, handlers.nothing),
        (Method.GET_SCHEMA, handlers.schema),
        (Method.LIST_PARAMETERS, handlers.list_parameters),
        (Method.GET_PARAMETERS, handlers.get_parameters),
        (Method.SET_PARAMETERS, handlers.set_parameters),
        (Method.SET_TIME_SCALE, handlers.set_time_scale),
        (Method.RESET_AGENT, handlers.reset_agent),
        (Method.RESET_OPTIONS, handlers.reset_options),
    ):
        dispatcher.register(method, handler)
    return dispatcher


def answer_commands(memory: StepMemory, dispatcher: Dispatcher, bridge: BaseBridge, bell: Any, seconds: float) -> int:
    """Answers what stands in the ring; how many. `seconds`: how long to wait for room for an answer.

    Raises:
        MalformedMessage, SegmentInvalid: not an envelope. RingFull: the trainer does not read its answers.
    """
    count = 0
    while memory.c2s is not None and (data := memory.c2s.try_read()) is not None:
        count += 1
        with bridge.lock:
            bridge.caller = threading.get_ident()
            try:
                answer = dispatcher.answer(data)
            finally:
                bridge.caller = None
        if answer is not None and memory.s2c is not None:
            write_within(memory.s2c, answer, seconds, bell.nudge)
    return count


def send_infos(
    memory: StepMemory, bridge: BaseBridge, seconds: float, nudge: Callable[[], None], meanwhile: Callable[[], object]
) -> None:
    """The infos of the frame that is published next; without a ring they are left out.

    Args:
        seconds, nudge, meanwhile: see `write_within`.
    """
    infos, ring = bridge.outbox.infos, memory.s2c
    if ring is not None:
        for env, info in infos.items():
            data = encode(Method.ENV_INFO, messages().EnvInfoT(envId=env, json=json.dumps(info, allow_nan=False)))
            write_within(ring, data, seconds, nudge, meanwhile)
    infos.clear()


class _Handlers:
    """One bridge's."""

    def __init__(self, bridge: BaseBridge, dispatcher: Dispatcher) -> None:
        self._bridge, self._dispatcher = bridge, dispatcher

    def ping(self, payload: Any, command: Command) -> Any:
        return payload

    def nothing(self, payload: Any, command: Command) -> Any:
        return None

    def schema(self, payload: Any, command: Command) -> Any:
        return messages().SchemaT(
            config=encode_handshake(self._bridge.spec).decode().strip(),
            observationNames=list(getattr(self._bridge, "observation_names", ())),
            actionNames=list(getattr(self._bridge, "action_names", ())),
            methods=self._dispatcher.methods,
        )

    def list_parameters(self, payload: Any, command: Command) -> Any:
        return self._listed(None)

    def get_parameters(self, payload: Any, command: Command) -> Any:
        return self._listed({text(name) for name in payload.names or ()} or None)

    def _listed(self, wanted: set[str] | None) -> Any:
        m = messages()
        known = self._offered("list_parameters")()
        for name in wanted or ():
            if name not in known:
                raise UnsupportedByEngine(
                    "this engine has no such parameter", fault="caller", field=name, expected=sorted(known)
                )
        return m.ParametersT(
            parameters=[
                m.ParameterT(name=name, value=float(value), low=float(low), high=float(high), envId=-1)
                for name, (value, low, high) in known.items()
                if wanted is None or name in wanted
            ]
        )

    def set_parameters(self, payload: Any, command: Command) -> Any:
        change = self._offered("set_parameter")
        known = self._offered("list_parameters")()
        given = [(text(p.name), float(p.value), int(p.envId)) for p in payload.parameters or ()]
        for name, value, env_id in given:  # all are looked at before the first is set
            if name not in known:
                raise UnsupportedByEngine(
                    "this engine has no such parameter", fault="caller", field=name, expected=sorted(known)
                )
            _, low, high = known[name]
            if not low <= value <= high:
                raise UnsupportedByEngine(
                    "a parameter is out of range", fault="caller", field=name, expected=f"{low} to {high}", got=value
                )
            if env_id >= 0:
                self._check_env(env_id)
        for name, value, env_id in given:
            change(name, value, env_id)

    def set_time_scale(self, payload: Any, command: Command) -> Any:
        if not 0 < payload.scale < float("inf"):
            raise UnsupportedByEngine("a time scale must be positive", fault="caller", got=payload.scale)
        self._offered("set_time_scale")(float(payload.scale))

    def reset_agent(self, payload: Any, command: Command) -> Any:
        contract = payload.contract
        if contract is None:
            raise MalformedMessage("a contract is missing", fault="trainer", field="contract")
        env_ids = [int(env) for env in (() if payload.envIds is None else payload.envIds)]
        for env in env_ids:
            self._check_env(env)
        self._offered("begin_contract")(
            None if contract.seed < 0 else int(contract.seed),
            {text(p.name): float(p.value) for p in contract.parameters or ()},
            {text(r.name): (float(r.low), float(r.high)) for r in contract.randomization or ()},
            env_ids,
        )

    def reset_options(self, payload: Any, command: Command) -> Any:
        self._check_env(int(payload.envId))
        try:
            options = json.loads(text(payload.json))
        except ValueError:
            options = None
        if not isinstance(options, dict):
            raise MalformedMessage(
                "reset options are no JSON object", fault="trainer", env_id=int(payload.envId), field="OPTIONS",
                got=text(payload.json),
            )  # fmt: skip
        self._bridge.inbox.options[int(payload.envId)] = options

    def _check_env(self, env_id: int) -> None:
        if not 0 <= env_id < self._bridge.num_envs:
            raise UnknownEnv(
                "the env id does not exist", fault="trainer", field="ENV",
                expected=f"0 to {self._bridge.num_envs - 1}", got=env_id,
            )  # fmt: skip

    def _offered(self, name: str) -> Any:
        method = getattr(self._bridge, name, None)
        if method is None:
            raise UnsupportedByEngine(
                f"this engine has no {name}", fault="caller", cure=f"the bridge may define {name}()"
            )
        return method
