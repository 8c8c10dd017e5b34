"""ShmCommands: requests and answers over the command rings, the trainer's side.

    connection.commands.set_parameters({"gravity": 3.7})
    connection.commands.request(Method.GET_ENTITY, messages().GetEntityT(id=7))

One thread, between two steps or while one is under way. What the engine sends unasked is kept in `events`, oldest
first, up to a limit; infos of envs go into the step that they belong to.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ue_rl.commands import Command, Method, decode, encode, messages, text, write_within
from ue_rl.errors import CommandFailed, EngineTimeout, MalformedMessage, UnknownEnv, UnsupportedByEngine
from ue_rl.shm_ring import Ring

MAX_EVENTS = 10_000


class ShmCommands:
    """See the module's docstring.

    Args:
        out, incoming: the rings; None with an engine that has none.
        bell: wakes the engine.
        wait: waits for one slice at most; raises what the connection's death is called.
        infos: where the infos of envs go. num_envs: how many there are.
        timeout: seconds for a request, unless it says otherwise.
    """

    def __init__(
        self,
        out: Ring | None,
        incoming: Ring | None,
        bell: Any,
        wait: Callable[[], None],
        infos: dict[int, dict[str, Any]],
        num_envs: int,
        timeout: float,
    ) -> None:
        self._out, self._in, self._bell, self._wait = out, incoming, bell, wait
        self._infos, self._num_envs = infos, num_envs
        self._last_id = 0
        self._answers: dict[int, Command | None] = {}
        self.timeout = timeout
        self.events: deque[Command] = deque(maxlen=MAX_EVENTS)

    def request(self, method: int, payload: Any = None, timeout: float | None = None) -> Any:
        """The answer's payload.

        Raises:
            CommandFailed: the engine says why not. EngineTimeout: no answer in time. RingFull: it does not read.
            UnsupportedByEngine: it has no command rings. Also what receive() raises where the engine has died.
        """
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        self._last_id += 1
        number = self._last_id
        self._answers[number] = None
        try:
            self._write(encode(method, payload, number), seconds)
            while self._answers[number] is None:
                if not self.drain():
                    if time.monotonic() > deadline:
                        raise EngineTimeout(
                            "the engine did not answer a command in time", fault="engine",
                            expected=f"an answer to method {int(method)} within {seconds:g} s",
                            cure="does its tick poll the command ring?",
                        )  # fmt: skip
                    self._wait()
        finally:
            answer = self._answers.pop(number)
        assert answer is not None
        if answer.error is not None:
            raise CommandFailed("the engine refused a command", fault="engine", field=_name(method), got=answer.error)
        return answer.payload

    def send(self, method: int, payload: Any = None) -> None:
        """Sends a message that gets no answer."""
        self._write(encode(method, payload), self.timeout)

    def drain(self) -> int:
        """Takes in what has come; how many messages.

        Raises:
            MalformedMessage, SegmentInvalid, UnknownEnv: what the engine sent cannot be.
        """
        if self._in is None:
            return 0
        count = 0
        while (data := self._in.try_read()) is not None:
            count += 1
            command = decode(data)
            if command.method == Method.ENV_INFO:
                self._take_info(command)
            elif command.correlation_id in self._answers:
                self._answers[command.correlation_id] = command
            elif not command.correlation_id:
                self.events.append(command)
        return count

    # -- the usual ones

    def ping(self) -> float:
        """Seconds that a command takes there and back."""
        begun = time.perf_counter_ns()
        answer = self.request(Method.PING, messages().PingT(stamp=begun))
        if int(answer.stamp) != begun:
            raise MalformedMessage("a ping came back changed", fault="engine", field="stamp", expected=begun)
        return (time.perf_counter_ns() - begun) / 1e9

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """The env parameters: name to (value, low, high)."""
        answer = self.request(Method.LIST_PARAMETERS, messages().ListParametersT())
        return {text(p.name): (p.value, p.low, p.high) for p in answer.parameters or ()}

    def get_parameters(self, names: Sequence[str] = (), env_id: int = -1) -> dict[str, float]:
        """The values of `names` (all, if none), of one env or of all."""
        payload = messages().GetParametersT(names=list(names), envId=env_id)
        return {text(p.name): p.value for p in self.request(Method.GET_PARAMETERS, payload).parameters or ()}

    def set_parameters(self, values: Mapping[str, float], env_id: int = -1) -> None:
        """Sets env parameters, of one env or (-1) of all."""
        m = messages()
        parameters = [m.ParameterT(name=name, value=float(value), envId=env_id) for name, value in values.items()]
        self.request(Method.SET_PARAMETERS, m.SetParametersT(parameters=parameters))

    def set_time_scale(self, scale: float) -> None:
        """How fast simulated time runs; 1 is real time."""
        self.request(Method.SET_TIME_SCALE, messages().SetTimeScaleT(scale=scale))

    def get_schema(self) -> dict[str, Any]:
        """The CONFIG line, names of observations and actions, and the methods that the engine knows."""
        answer = self.request(Method.GET_SCHEMA, messages().GetSchemaT())
        return {
            "config": text(answer.config),
            "observation_names": [text(name) for name in answer.observationNames or ()],
            "action_names": [text(name) for name in answer.actionNames or ()],
            "methods": [int(method) for method in (() if answer.methods is None else answer.methods)],
        }

    def set_contract(
        self,
        *,
        seed: int | None = None,
        parameters: Mapping[str, float] | None = None,
        randomization: Mapping[str, tuple[float, float]] | None = None,
        env_ids: Sequence[int] = (),
    ) -> None:
        """What the episodes from the next reset on are simulated under.

        Args:
            seed: of the randomisation. parameters: name to value. randomization: name to (low, high).
            env_ids: none: all envs.
        """
        m = messages()
        contract = m.SimulationContractT(
            seed=-1 if seed is None else seed,
            parameters=[m.ParameterT(name=k, value=float(v)) for k, v in (parameters or {}).items()],
            randomization=[
                m.RandomizationRangeT(name=k, low=float(low), high=float(high))
                for k, (low, high) in (randomization or {}).items()
            ],
        )
        self.request(Method.RESET_AGENT, m.ResetAgentT(contract=contract, envIds=list(env_ids)))

    def send_options(self, env_id: int, options: Mapping[str, Any]) -> None:
        """Options of a reset that is asked in the next frame."""
        self.send(Method.RESET_OPTIONS, messages().ResetOptionsT(envId=env_id, json=json.dumps(dict(options))))

    # -- helpers

    def _write(self, data: bytes, seconds: float) -> None:
        if self._out is None:
            raise UnsupportedByEngine(
                "this engine has no command rings", fault="engine", field="cmd_ring_size", expected="a size", got=0
            )
        write_within(self._out, data, seconds, self._bell.nudge, self.drain)

    def _take_info(self, command: Command) -> None:
        env = command.payload.envId if command.payload is not None else -1
        if not 0 <= env < self._num_envs:
            raise UnknownEnv(
                "an info names an env that does not exist", fault="engine", field="ENV",
                expected=f"0 to {self._num_envs - 1}", got=env,
            )  # fmt: skip
        try:
            info = json.loads(text(command.payload.json))
        except ValueError:
            info = None
        if not isinstance(info, dict):
            raise MalformedMessage(
                "an info is no JSON object", fault="engine", env_id=env, field="INFO", got=text(command.payload.json)
            )
        self._infos[env] = info


def _name(method: int) -> str:
    return Method(method).name if method in Method.__members__.values() else str(method)
