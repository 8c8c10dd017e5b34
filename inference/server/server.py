"""PolicyServer: answers observations of engines that cannot run ONNX themselves. Protocol: docs/policy-server.md.

One asyncio loop; the observations of all engines that have arrived by the next loop turn are answered by one batched
call of the model. Each engine has at most one line in work; what it sends ahead waits in its socket. A newer model file
is loaded in another thread and used from the next batch on. An engine that breaks the protocol, that an answer
cannot be found for, or that does not read, loses its own connection and nothing else. One that only closes its
sending side still gets the answers to what it has asked.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import deque
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.inference.runtime.reload import ReloadingInference
from ue_rl.inference.server.engine import PARTING, ActionRequest, ServedEngine
from ue_rl.protocol.access.server_access import ServerAccess, listen
from ue_rl.system.errors import ConfigurationError, InferenceError, UeRlError

_log = logging.getLogger("ue_rl.inference.server.server")
_SAY_AGAIN = 60.0  # seconds after which a lasting lack of descriptors is said again
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PolicyServer:
    """Serves one model to many engines.

    Args:
        policy: the model; its file is followed, whether or not the policy does so by itself.
        host, port: where to listen; port 0 takes a free one.
        max_batch: rows per call of the model at most, and envs per engine.
        max_wait: seconds that an observation may wait for those of other engines; 0 answers at once. The loop's clock
            ticks in milliseconds, and nobody waits when all engines have asked.
        max_engines: connections at once.
        hello_timeout: seconds until the first line must have come.
        write_timeout: seconds that an engine may leave its answers unread, once they fill the way to it.
        reload_interval: seconds between two checks of the model's file.
        access: asks for a token, and speaks TLS; None: neither.

    Attributes:
        engines: connected now. requests: observations answered so far, in `batches` calls. dropped: connections closed
            by this side for a reason. waiting_rows: observations that wait for an answer. latencies: seconds from an
            observation's arrival to its answer, the last 10 000.

    Raises:
        ConfigurationError: an invalid limit.
    """

    def __init__(
        self,
        policy: ReloadingInference,
        host: str = "127.0.0.1",
        port: int = 7778,
        *,
        max_batch: int = 4096,
        max_wait: float = 0.0,
        max_engines: int = 1024,
        hello_timeout: float = 10.0,
        write_timeout: float = 10.0,
        reload_interval: float = 1.0,
        access: ServerAccess | None = None,
    ) -> None:
        self._access = access
        for name, value, low in (
            ("max_batch", max_batch, 1),
            ("max_wait", max_wait, 0),
            ("max_engines", max_engines, 1),
            ("hello_timeout", hello_timeout, 1e-3),
            ("write_timeout", write_timeout, 1e-3),
            ("reload_interval", reload_interval, 1e-3),
        ):
            if not value >= low:
                raise ConfigurationError("too small", field=name, expected=f">= {low}", got=value)
        self.policy = policy
        self.host = host
        self.max_batch = max_batch
        self.max_wait = max_wait
        self.max_engines = max_engines
        self.hello_timeout = hello_timeout
        self.write_timeout = write_timeout
        self.reload_interval = reload_interval
        self._asked_port = port
        self._server: asyncio.Server | None = None
        self._waiting: list[ActionRequest] = []
        self.waiting_rows = 0
        self._due: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._follower: asyncio.Task[None] | None = None
        self.closing = False
        self.engines: set[ServedEngine] = set()
        self.connections: set[ServedEngine] = set()  # the engines, and those whose connection is not closed to the end
        self.greeted = 0
        self.requests = self.batches = self.dropped = 0
        self.latencies: deque[float] = deque(maxlen=10_000)

    # -- life cycle

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listens; raises OSError where it cannot."""
        self.loop = asyncio.get_running_loop()
        self.closing = False
        self._said_full = -_SAY_AGAIN
        self._server, _ = await listen(lambda: ServedEngine(self), self.host, self._asked_port, 512, self._access)
        self._handler_before = self.loop.get_exception_handler()
        self.loop.set_exception_handler(self._on_error)
        self._follower = self.loop.create_task(self._follow())

    async def close(self) -> None:
        """Stops listening and closes every connection; idempotent.

        Open requests get no answer. Answers already written have a second to be read.
        """
        self.closing = True
        if self._server is not None:
            self._server.close()
        for handle in (self._due, self._timer):
            if handle is not None:
                handle.cancel()
        self._due = self._timer = None
        self._waiting = []
        self.waiting_rows = 0
        for engine in list(self.engines):
            engine.hang_up()
        if self._server is not None and self.loop.get_exception_handler() == self._on_error:
            self.loop.set_exception_handler(self._handler_before)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
            self._follower = None
        end = time.monotonic() + PARTING
        await asyncio.sleep(0)  # connections with nothing left to send end here
        while any(engine.unsent for engine in self.connections) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for engine in list(self.connections):
            engine.abort()

    async def __aenter__(self) -> PolicyServer:
        """Starts."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes."""
        await self.close()

    def percentiles(self) -> tuple[float, float] | None:
        """(p50, p99) of the recent latencies in seconds, None before the first answer."""
        if not self.latencies:
            return None
        p50, p99 = np.percentile(np.array(self.latencies), [50, 99])
        return float(p50), float(p99)

    @property
    def num_envs(self) -> int:
        """Envs of all engines that have said hello."""
        return sum(engine.spec.num_envs for engine in self.engines if engine.spec is not None)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.reload_interval)
            try:
                await self.loop.run_in_executor(None, self.policy.poll)
            except Exception:  # noqa: BLE001 (the model in use stays; the next check may succeed)
                _log.exception("checking for a newer model failed")

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Says in one line that nobody can be accepted. The loop waits a second before it tries again, which it reports
        with a traceback each time."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED and "accept" in context["message"]):
            handler = self._handler_before
            if not handler:
                handler = type(loop).default_exception_handler
            handler(loop, context)
        elif loop.time() >= self._said_full + _SAY_AGAIN:
            self._said_full = loop.time()
            _log.error(
                "no engine can connect at present: %s, with %d connected. These are served, others wait until some "
                "have gone. Raise the limit of open files (ulimit -n), or lower --max-engines",
                error.strerror,
                len(self.engines),
            )

    # -- batches

    def submit(self, ask: ActionRequest) -> None:
        """Queues one line; all that are there at the loop's next turn are answered together."""
        self._waiting.append(ask)
        self.waiting_rows += len(ask.envs)
        if self._due is not None:
            return
        if (
            self.max_wait <= 0
            or self.waiting_rows >= self.max_batch
            or len(self._waiting) >= self.greeted  # everybody who could ask has asked
        ):
            self._due = self.loop.call_soon(self._answer)
        elif self._timer is None:
            self._timer = self.loop.call_later(self.max_wait, self._answer)

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._timer = None
        count = len(self._waiting)
        if self.waiting_rows > self.max_batch:
            ends = accumulate(len(ask.envs) for ask in self._waiting)
            count = max(1, sum(end <= self.max_batch for end in ends))
            self._due = self.loop.call_soon(self._answer)
        batch = self._waiting[:count]
        self._waiting = self._waiting[count:]
        self.waiting_rows = sum([len(ask.envs) for ask in self._waiting])
        batch = [ask for ask in batch if ask.engine in self.engines]
        if batch:
            self._serve(batch)

    def _serve(self, batch: list[ActionRequest]) -> None:
        """Answers the batch; where the model fails for it, line by line, and bad ones are dropped."""
        try:
            lines = self._think(batch)
        except Exception as error:  # noqa: BLE001 (of any kind: an engine must not wait forever for its answer)
            if len(batch) > 1:  # one engine's observation may be all that the model cannot take
                for ask in batch:
                    self._serve([ask])
            elif isinstance(error, UeRlError):
                if error.env_id is not None:  # the model knows rows, the engine its envs
                    error.env_id = int(batch[0].envs[error.env_id])
                batch[0].engine.drop(error)
            else:
                _log.exception("the model failed")
                batch[0].engine.drop(InferenceError("the model failed", fault="model", got=error))
            return
        for ask, line in zip(batch, lines, strict=True):
            ask.engine.write(line)
        now = time.perf_counter()
        self.batches += 1
        for ask in batch:
            self.requests += len(ask.envs)
            self.latencies.extend([now - ask.arrived] * len(ask.envs))
            ask.engine.answered()

    def _think(self, batch: list[ActionRequest]) -> list[bytes]:
        """The line that answers each ask. States change only when all went well; a newer model has none yet."""
        model = self.policy.current
        observations = np.concatenate([ask.engine.asked(ask.envs) for ask in batch])
        if not model.is_recurrent:
            masks = self._masks(batch, model)
            if masks is None:
                return self._lines(batch, model.run_inference(observations))
            return self._lines(batch, model.run_inference(observations, action_masks=masks))
        agents = [(ask.engine, env) for ask in batch for env in ask.envs.tolist()]
        model.reset([(engine, env) for engine, env in agents if engine.resets[env]])
        return self._lines(batch, model.run_inference_for(agents, observations))

    @staticmethod
    def _masks(batch: list[ActionRequest], model: OnnxInference) -> NDArray[np.uint8] | None:
        """The action masks of all rows, ones where an engine sends none; None where nobody does."""
        # Engines without masks are refused where the model needs them, but a newer file may need what the one before
        # did not: such a batch fails as a whole, and then line by line.
        silent = [ask.engine.masks is None for ask in batch]
        if not model.takes_masks or all(silent) or (model.needs_masks and any(silent)):
            return None
        size = next(ask.engine.masks.shape[1] for ask in batch if ask.engine.masks is not None)
        return np.concatenate(
            [
                np.ones((len(ask.envs), size), np.uint8) if ask.engine.masks is None else ask.engine.masks[ask.envs]
                for ask in batch
            ]
        )

    @staticmethod
    def _lines(batch: list[ActionRequest], actions: NDArray[np.float32]) -> list[bytes]:
        at = 0
        lines = []
        for ask in batch:
            lines.append(ask.engine.encode(ask.envs, actions[at : at + len(ask.envs)]))
            at += len(ask.envs)
        return lines
