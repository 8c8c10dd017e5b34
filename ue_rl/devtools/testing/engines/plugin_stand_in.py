"""PluginStandIn: the deployed Unreal plugin's behaviour on the wire, on real sockets, without Unreal.

What it does, quirk by quirk:

- The first connection is the admin: it gets the handshake at once and is never read again. Each accept
  poll takes one connection; `accept_interval` is 0.1 s in the plugin.
- MULTI: further connections are env sockets, their id is the order of accept. No socket is read until all
  are there, so earlier commands wait. One connection too many is accepted by the kernel and never
  answered. SINGLE: one env socket.
- A closed env socket keeps its slot. A client that dies before its env sockets came leaves the admin slot
  taken: the next client's first connection becomes an env socket and gets no handshake.
- SINGLE and RLBASE: a read ends at the first NUL byte. With `stale_reads`, what earlier reads have left in memory
  behind the received bytes is taken for text too, up to a NUL byte.
- Per tick and env at most 1024 bytes are read and at most one line is taken. An empty line is dropped.
- Lines are tagged `;ENV=<socket>` unless `tag_lines` is off; the first ENV field of a row wins. A row
  without one gets a stray text line (`PROBLEM IS HERE..`). An id out of range aborts the game: all sockets
  close, `aborted` says why.
- A row without ACT is an empty action and is answered. RESET anywhere in the ACT value is a reset,
  answered at once; its REW and DONE mean nothing. An action is answered when it has run for `action_ticks`
  ticks; a new action restarts it.
- RLBASE: one socket for everything, the listener closes after the first accept, a state line comes
  unasked, commands are bare (`RESET` and `TRAINING_COMPLETE` only as exactly these words), an answer comes
  in a later tick.

It never complains about actions, as the plugin never does. The task inside is `ue_rl.devtools.testing.task.TinyTask`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ue_rl.devtools.testing.engines import plugin_dialect as dialect
from ue_rl.devtools.testing.engines.loop import EngineLoop
from ue_rl.devtools.testing.engines.plugin_dialect import ObsFormat
from ue_rl.devtools.testing.task import TinyTask

__all__ = ["ObsFormat", "PluginStandIn"]

_READ_LIMIT = 1024
_log = logging.getLogger(__name__)


@dataclass
class _Slot:
    """One env: its task and action, its socket (None: not yet), and what it has received."""

    task: TinyTask
    action_ticks: int
    sock: socket.socket | None = None
    open: bool = False
    partial: bytes = b""
    ticks_left: int = 0


class PluginStandIn(EngineLoop):
    """A game with the plugin in it. Use as a context manager, or `start()` and `close()`.

    Args:
        env_type: "MULTI", "SINGLE" or "RLBASE".
        num_envs: ENV_COUNT; 1 unless MULTI.
        obs_size, act_size, episode_length: the task's.
        obs_format: how the game spells an observation.
        decimals: decimals of an observation (2 by the plugin's habit); rewards always have two.
        action_ticks: how long an action runs, for all envs or one number each.
        tick_rate: ticks per second; None ticks as fast as there is something to do.
        accept_interval: seconds between two accepts (0.1 in the plugin).
        manual: no thread of its own; the test calls `tick()`.
        tag_lines: whether a line is tagged with its socket's id; without, a row must carry its ENV.
        handshake: sent instead of the plugin's own, without a newline.
        host, port: the address to listen on; 0: a free port.
        stale_reads: see above.

    Attributes:
        lines: (tick, env, line) of each line taken.
        ticks: ticks so far.
        aborted: why the game died, None while it lives.
    """

    def __init__(
        self,
        *,
        env_type: str = "MULTI",
        num_envs: int | None = None,
        obs_size: int = 4,
        act_size: int = 2,
        obs_format: ObsFormat | str = ObsFormat.ARRAY,
        decimals: int = 2,
        action_ticks: int | Sequence[int] = 1,
        tick_rate: float | None = None,
        accept_interval: float = 0.0,
        manual: bool = False,
        tag_lines: bool = True,
        handshake: str | None = None,
        episode_length: int = 5,
        host: str = "127.0.0.1",
        port: int = 0,
        stale_reads: bool = False,
    ) -> None:
        if env_type not in ("MULTI", "SINGLE", "RLBASE"):
            raise ValueError(f"no such env_type: {env_type!r}")
        if num_envs is None:
            if env_type == "MULTI":
                self.num_envs = 2
            else:
                self.num_envs = 1
        else:
            self.num_envs = num_envs
        if env_type != "MULTI" and self.num_envs != 1:
            raise ValueError(f"{env_type} has one env")
        self.env_type = env_type
        self.obs_format = ObsFormat(obs_format)
        self.decimals = decimals
        self.handshake = handshake or self._own_handshake(obs_size, act_size)
        self.lines: list[tuple[int, int, str]] = []
        self.ticks = 0
        self.aborted: str | None = None
        if not (stale_reads and env_type != "MULTI"):
            self._memory = None
        else:
            self._memory = bytearray(_READ_LIMIT)
        self._tag_lines = tag_lines and env_type == "MULTI"
        self._tick_rate = tick_rate
        self._accept_interval = accept_interval
        self._next_accept = 0.0
        if isinstance(action_ticks, int):
            durations = [action_ticks] * self.num_envs
        else:
            durations = list(action_ticks)
        if len(durations) != self.num_envs:
            raise ValueError("action_ticks needs one number per env")
        options = {"obs_size": obs_size, "act_size": act_size, "episode_length": episode_length}
        self._slots = [_Slot(TinyTask(i, decimals=decimals, **options), durations[i]) for i in range(self.num_envs)]
        self.admin: socket.socket | None = None
        self._awaits_command = False  # RLBASE: the state has been sent
        super().__init__("stand-in", host, self.num_envs + 1, threaded=not manual, port=port)
        assert self.listener is not None
        self.listener.setblocking(False)
        if accept_interval == 0:
            self._watch(self.listener)

    # -- the test's side

    @property
    def all_connected(self) -> bool:
        """Whether every env socket has come (it may have gone since)."""
        return all(slot.sock is not None for slot in self._slots)

    def tick(self, count: int = 1) -> None:
        """`count` ticks of the game, for `manual=True`."""
        for _ in range(count):
            self._tick()

    def run_until(self, condition: Callable[[], bool], timeout: float = 5.0) -> int:
        """Ticks until `condition()` holds, for `manual=True`; how many ticks it took.

        Raises:
            TimeoutError: it did not hold in time.
        """
        deadline = time.monotonic() + timeout
        ticks = 0
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the condition did not hold within {timeout} s ({ticks} ticks)")
            self._tick()
            ticks += 1
        return ticks

    # -- the game's loop

    def _loop(self) -> None:
        due = time.monotonic()
        while not self.ending.is_set() and self.aborted is None:
            self._tick()
            if self._tick_rate is not None:
                due = max(due + 1 / self._tick_rate, time.monotonic() - 1 / self._tick_rate)
                self.ending.wait(max(0.0, due - time.monotonic()))
            elif not self._busy():
                waits = self._accept_interval > 0 and self._accepting
                if not waits:
                    timeout = None
                else:
                    timeout = max(0.0, self._next_accept - time.monotonic())
                self._selector.select(timeout)

    @property
    def _accepting(self) -> bool:
        return self.listener is not None and (self.admin is None or not self.all_connected)

    def _busy(self) -> bool:
        if self.env_type == "RLBASE" and self._slots[0].sock is not None and not self._awaits_command:
            return True
        return self.all_connected and any(slot.ticks_left or b"\n" in slot.partial for slot in self._slots)

    def _tick(self) -> None:
        if self.aborted is not None:
            return
        self.ticks += 1
        self._accept()
        if not self.all_connected:
            return
        if self.env_type == "RLBASE":
            self._tick_rlbase()
        else:
            self._tick_keyed()

    def _tick_keyed(self) -> None:
        taken = [(env, line) for env in range(self.num_envs) if (line := self._read_line(env))]
        for env, line in taken:
            if self._tag_lines:
                tagged = f"{line};ENV={env}"
            else:
                tagged = line
            for row in dialect.split_rows(tagged):
                self._take_row(row, env)
                if self.aborted is not None:
                    return
        for env, slot in enumerate(self._slots):
            if slot.ticks_left:
                slot.ticks_left -= 1
                if not slot.ticks_left:
                    self._answer(env)

    def _take_row(self, row: str, came_from: int) -> None:
        action = dialect.action_text(row)
        if self.env_type == "MULTI":
            env = dialect.env_id(row)
        else:
            env = 0
        if env is None:
            self._send(self._slots[came_from], f"PROBLEM IS HERE{row}")
            return
        if not 0 <= env < self.num_envs:
            self.aborted = f"env id {env} is out of range: {row!r}"
            _log.info("the stand-in's game aborts: %s", self.aborted)
            self._close_all()
            return
        slot = self._slots[env]
        if "RESET" in action.upper():
            slot.task.reset()
            slot.ticks_left = 0
            self._answer(env)
        else:
            self._apply(slot, action)

    def _apply(self, slot: _Slot, action: str) -> None:
        slot.task.step(dialect.action_numbers(action))
        slot.ticks_left = slot.action_ticks

    def _tick_rlbase(self) -> None:
        slot = self._slots[0]
        if slot.ticks_left:
            slot.ticks_left -= 1
            return
        if not self._awaits_command:
            self._answer(0)
            self._awaits_command = True
        line = self._read_line(0)
        if not line:
            return
        self._awaits_command = False
        if line == "RESET":
            slot.task.reset()
        elif line == "TRAINING_COMPLETE":
            slot.task.reset()
            self.aborted = "the training is complete"
            self._close_all()
        else:
            self._apply(slot, line)

    # -- text

    def _own_handshake(self, obs_size: int, act_size: int) -> str:
        text = f"CONFIG:OBS={obs_size};ACT={act_size};ENV_TYPE={self.env_type}"
        return text + {"MULTI": f";ENV_COUNT={self.num_envs}", "SINGLE": "", "RLBASE": ";"}[self.env_type]

    def _answer(self, env: int) -> None:
        task = self._slots[env].task
        state = dialect.state_string(task.observation, self.obs_format, self.decimals)
        # After a reset DONE means nothing: it is 1 every other time, to expose a trainer that reads it.
        if task.steps:
            done = int(task.done)
        else:
            done = (env + task.episode + 1) % 2
        if self.env_type == "RLBASE":
            text = f"{state}{task.reward:.2f};{done}"
        else:
            text = f"OBS={state}REW={task.reward:.2f};DONE={done}"
            if self.env_type == "MULTI":
                text += f";ENV={env}"
        self._send(self._slots[env], text)

    # -- sockets

    def _accept(self) -> None:
        now = time.monotonic()
        if not self._accepting or now < self._next_accept:
            return
        assert self.listener is not None
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
        finally:
            self._next_accept = now + self._accept_interval
        sock.setblocking(False)
        if self.admin is None:
            self.admin = sock
            if self.env_type == "RLBASE":
                self.close_listener()  # a client that reads the handshake must find the door closed
            self._send_all(sock, f"{self.handshake}\n".encode())
            if self.env_type != "RLBASE":
                return
        slot = next(slot for slot in self._slots if slot.sock is None)
        slot.sock = sock
        slot.open = True
        if not self.all_connected:
            return
        if self.listener is not None:
            self._unwatch(self.listener)  # it stays open: one too many waits in the kernel
        for other in self._slots:
            assert other.sock is not None
            self._watch(other.sock)

    def _read_line(self, env: int) -> str:
        """The env's next line ('' for none or an empty one); reads at most 1024 bytes."""
        slot = self._slots[env]
        if slot.open and slot.sock is not None:
            try:
                data = slot.sock.recv(_READ_LIMIT)
                if data:
                    slot.partial += self._as_text(data)
                else:
                    self._lose(slot)
            except BlockingIOError:
                pass
            except OSError:
                self._lose(slot)
        if b"\n" not in slot.partial:
            return ""
        raw, slot.partial = slot.partial.split(b"\n", 1)
        line = raw.decode("utf-8", "replace")
        if line:
            self.lines.append((self.ticks, env, line))
        return line

    def _as_text(self, data: bytes) -> bytes:
        """What the game takes for the text of a read."""
        if self.env_type == "MULTI":
            return data
        if self._memory is not None:
            self._memory[: len(data)] = data
            data = bytes(self._memory)
        return data.partition(b"\0")[0]

    def _lose(self, slot: _Slot) -> None:
        """The client has closed this socket; the slot stays taken."""
        slot.open = False
        assert slot.sock is not None
        self._unwatch(slot.sock)

    def _send(self, slot: _Slot, text: str) -> None:
        """Sends a line; a client that is gone is ignored, one that does not read holds the game up."""
        if slot.open and slot.sock is not None:
            self._send_all(slot.sock, f"{text}\n".encode())

    def close_clients(self) -> None:
        """Closes every connection."""
        for slot in self._slots:
            if slot.sock is not None:
                slot.open = False
                slot.sock.close()
        if self.admin is not None:
            self.admin.close()
