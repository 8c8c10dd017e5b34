"""RecordingTransport: any Transport, with everything that it is asked and answers written into a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.calls import write_refused
from ue_rl.protocol.traces.file import HEAD, MOST, MessageKind, answer_arrays, rows_of
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.protocol.transport import Draw, Envs, Options, Params, Seeds, Transport, owns_transport
from ue_rl.system.errors import CommandFailed, UeRlError, UnexpectedMessage

_STEP = int(MessageKind.STEP)
_ANSWER = int(MessageKind.ANSWER)
_pack = HEAD.pack  # attributes are slow to look up, and it is needed twice a step


class RecordingTransport(Transport):
    """Writes all but the commands of shared memory (`commands`), which pass through.

    Args:
        transport: taken over. path: of the trace. limit: bytes that it may take, see TraceWriter.

    Attributes:
        transport: that carries the messages; what this class does not have is asked of it.
        writer: of the trace; after connect().

    Raises:
        ConfigurationError: from connect(): the trace cannot be written.
    """

    writer: TraceWriter

    @owns_transport
    def __init__(self, transport: Transport, path: str | Path, limit: int = MOST) -> None:
        self.transport = transport
        self._path = path
        self._limit = limit
        self._receive = transport.receive
        self._send = transport.send_actions
        self._drawn: dict[int, Mapping[str, float] | None] = {}
        self._draw: Draw | None = None
        self._envs: list[int] | None = None  # of the request under way; None: all take a step

    def __getattr__(self, name: str) -> Any:
        if name in ("writer", "transport"):  # before connect(), or where __init__ has failed
            raise AttributeError(name)
        return getattr(self.transport, name)

    @property
    def spec(self) -> EnvSpec:
        """See Transport.spec."""
        return self.transport.spec

    @property
    def draw_parameters(self) -> Draw | None:
        """See Transport; what it gives is recorded."""
        return self._draw

    @draw_parameters.setter
    def draw_parameters(self, draw: Draw | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._draw = draw
        if draw is None:
            self.transport.draw_parameters = None
        else:
            self.transport.draw_parameters = self._noting(draw)

    def _noting(self, draw: Draw) -> Draw:
        def noted(env: int) -> Mapping[str, float] | None:
            self._drawn[env] = values = draw(env)
            return values

        return noted

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        spec = self.transport.connect()
        if "writer" not in vars(self):
            self._names = answer_arrays(spec)
            self._beside = self._names[4:]
            self._spec = spec
            self._none = np.zeros((0, spec.act_size), np.float32)
            self.writer = writer = TraceWriter(self._path, spec, "trainer", self._limit)
            self._pieces = writer.pieces
            self._began = writer.began
            self._every = 5 * writer.every
            writer.add(MessageKind.SESSION, self.transport.describe())
        self.buffers = self.transport.buffers
        self.handshake = self.transport.handshake
        return spec

    def send_actions(
        self, actions: NDArray[np.float32], resets: Envs = None, parameters: Params = None, resting: Sequence[int] = ()
    ) -> None:
        """See Transport.send_actions."""
        try:
            self._send(actions, resets, parameters, resting)
        except BaseException as error:
            self._failed("send_actions", error)
            raise
        if (resets is None or not len(resets)) and not len(resting):
            self._envs = None
            pieces = self._pieces
            pieces += (_pack(_STEP, perf_counter() - self._began), actions.tobytes())
            return
        if resets is not None:
            begin = resets
        else:
            begin = ()
        away = {*map(int, begin), *map(int, resting)}
        steps = [env for env in range(self._spec.num_envs) if env not in away]
        self._note(steps, list(map(int, begin)), None, None, parameters, actions[rows_of(steps, self._spec)])

    def reset(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, parameters: Params = None
    ) -> None:
        """See Transport.reset."""
        try:
            self.transport.reset(env_ids, seeds, options, parameters)
        except BaseException as error:
            self._failed("reset", error)
            raise
        if env_ids is None:
            envs = list(range(self._spec.num_envs))
        else:
            envs = [int(env) for env in env_ids]
        self._note([], envs, seeds, options, parameters, self._none)

    def _note(
        self,
        steps: list[int],
        resets: list[int],
        seeds: Seeds,
        options: Options,
        parameters: Params,
        actions: NDArray[np.float32],
    ) -> None:
        """A request that is not the usual one."""
        if not (parameters is None and self._draw is not None):
            drawn = parameters
        else:
            drawn = self._drawn
        facts: dict[str, Any] = {}
        if seeds is not None:
            facts["seeds"] = list(seeds)
        if options is not None:
            facts["options"] = list(options)
        if drawn is not None:
            facts["parameters"] = [drawn.get(env) for env in resets]
        self._envs = [*steps, *resets]
        self.writer.ask(steps, resets, facts, actions)

    def receive(self) -> StepBuffers:
        """See Transport.receive."""
        try:
            buffers = self._receive()
        except BaseException as error:
            self._failed("receive", error)
            raise
        if self._envs is None and not buffers.infos and not buffers.lost:
            now = perf_counter()
            pieces = self._pieces
            pieces += (
                _pack(_ANSWER, now - self._began),
                buffers.obs.tobytes(),
                buffers.rewards.tobytes(),
                buffers.dones.tobytes(),
                buffers.truncated.tobytes(),
            )
            for name in self._beside:
                pieces.append(getattr(buffers, name).tobytes())
            if len(pieces) > self._every or now > self.writer.due:
                self.writer.filled(now)
            return buffers
        envs = None
        if self._envs is not None:
            envs = sorted(self._envs)
        rows: Any = slice(None)
        if envs is not None:
            agents = self._spec.agents_per_env  # a slice of one env is quicker than its ids
            one = slice(envs[0] * agents, (envs[0] + 1) * agents)
            if len(envs) == 1:
                rows = one
            else:
                rows = rows_of(envs, self._spec)
        facts: dict[str, Any]
        if buffers.infos:
            facts = {"infos": buffers.infos}
        else:
            facts = {}
        if buffers.lost:
            facts["lost"] = sorted(buffers.lost)
        self.writer.part(envs, facts, *(getattr(buffers, name)[rows] for name in self._names))
        return buffers

    def call(self, line: str) -> str:
        """See Transport.call."""
        try:
            answer = self.transport.call(line)
        except CommandFailed as error:
            reason = error.got or error.message
            self.writer.called(line, write_refused(str(reason)))
            raise
        except BaseException as error:
            self._failed("call", error)
            raise
        self.writer.called(line, answer)
        return answer

    def _failed(self, during: str, error: BaseException) -> None:
        if isinstance(error, UnexpectedMessage) and error.fault == "caller":
            return  # a reset takes what may be under way, and as a rule nothing is: no message at all
        if "writer" in vars(self):
            if isinstance(error, UeRlError):
                said = error.plain()
            else:
                said = str(error)
            self.writer.add(MessageKind.ERROR, {"during": during, "error": type(error).__name__, "message": said})

    @property
    def commands(self) -> Any:
        """See Transport.commands; what goes through them is not recorded."""
        return self.transport.commands

    def fail(self, reason: object) -> None:
        """See Transport.fail."""
        self.transport.fail(reason)

    def close(self) -> None:
        """See Transport.close; the trace is whole then."""
        self.transport.close()
        if "writer" in vars(self):
            self.writer.close()

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        return self.transport.describe()
