"""ShmFaultyEngine: a FaultyEngine that offers shared memory, and fails there as its Script says.

Up to the trainer's answer to the offer everything is FaultyEngine's: a broken handshake is broken here too. What a
fault means in memory: numbers and flags of a row's `text` are written into the arrays (PRESENT=0, too, which has no
word in text); TWICE counts frame_seq up by two; MISSING answers the other envs and never publishes; WRONG_ENV sends an
info for an env that does not exist; GARBAGE and OVERSIZE break the command ring; HALF_LINE dies when half of the
observations are written. Faults of a text's form (a hole, a field twice, no ENV) have no meaning here and are refused.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import socket
import struct
from dataclasses import replace
from typing import Any

import numpy as np

from ue_rl.devtools.testing.engines.faulty import AUTO, Fault, FaultKind, FaultyEngine, Script
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.protocol.commands.entries import ENV_INFO, json_entry
from ue_rl.protocol.memory.bell import Bell
from ue_rl.protocol.memory.header import ACTION_SEQ, SERVER_STATE, SERVING
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.offer import READY, offer_text
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system import processes
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.spin import ENGINE_SLICE_MS

_FORM = (FaultKind.TOO_FEW, FaultKind.TOO_MANY, FaultKind.OTHER_ENV, FaultKind.NO_ENV)
_RING = 4096


class ShmFaultyEngine(FaultyEngine):
    """See FaultyEngine for the arguments; MULTI only.

    Attributes:
        name: of the segment.
        quiet: nothing more is to come: an answer that was due was left out.
        steps: frames that were requested, of all clients.

    Raises:
        ConfigurationError: a fault that has no meaning in memory.
    """

    def __init__(self, script: Script | Fault | None = None, **options: Any) -> None:
        super().__init__(script, **options)
        for fault in self.script.faults:
            if fault.kind in _FORM:
                raise ConfigurationError(
                    "this fault has no meaning in shared memory", field="script", got=fault.kind.name
                )
        # here after_handshake means: a frame is published before the request was read
        self._unasked = bool(self.script.after_handshake)
        self.script = replace(self.script, after_handshake="")
        self._token, self.steps = secrets.token_bytes(16), 0
        self.quiet = self.script.handshake is None
        config = b"CONFIG:\n"
        regions: dict[str, Any] = {}
        if self.script.handshake == AUTO:
            config = f"{super().handshake}\n".encode()
            spec = decode_handshake(config)
            regions = {"mask_size": spec.mask_size, "agents": bool(spec.groups)}
        header, size = plan(
            self.num_envs,
            self.obs_size,
            self.act_size,
            ring_size=_RING,
            config=config,
            token=self._token,
            **regions,
            proof=secrets.token_bytes(16),
            server_pid=os.getpid(),
            server_start=processes.start_time(),
        )
        self._segment = Segment.create(size)
        self._memory = StepMemory.create(self._segment.memory, header, config)
        self._memory.store_u32(SERVER_STATE, SERVING)
        self.name = self._segment.name

    @property
    def handshake(self) -> str | None:
        text = super().handshake
        return text if self.script.handshake != AUTO else f"{text};SHM={offer_text(self.name, self._token)}"

    def close(self) -> None:
        """Also deletes the segment."""
        super().close()
        self._memory.release()
        self._segment.close()

    # -- in memory

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        if not line.upper().startswith(b"SHM=ACCEPT"):
            super()._answer(sock, line)
            return
        seen = self._memory.load_u64(ACTION_SEQ)  # before READY: the trainer may ask right behind it
        self._send(sock, READY)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, ENGINE_SLICE_MS * 1000))
        sock.setblocking(True)
        bell = self._memory.bell(engine=True, sock=sock)
        try:
            while not self.ending.is_set():
                try:
                    now = bell.wait(seen, 0, ENGINE_SLICE_MS)
                except ConnectionResetError:
                    break
                if now != seen and not self._silent:
                    seen = now
                    if self._unasked:
                        bell.publish()
                        continue
                    self.steps += 1
                    self._frame(sock, bell)
                    if sock.fileno() < 0:
                        return
        finally:
            bell.release()
        self.close_clients()

    def _frame(self, sock: socket.socket, bell: Bell) -> None:
        memory, script = self._memory, self.script
        assert memory.ask is not None
        assert memory.answered is not None
        if script.latency:
            self.rest(script.latency)
        memory.answered[:] = 0
        assert memory.answered_seq is not None
        memory.answered_seq[0] = bell.peek()
        struck: list[Fault] = []
        for env in np.flatnonzero(memory.ask).tolist():
            step, fault = self._count(env)
            memory.obs[env], memory.rewards[env] = env + step / 4, 0 if memory.ask[env] == ActionBatch.RESET else step
            memory.dones[env] = memory.truncated[env] = 0
            for beside in (memory.masks, memory.present):
                if beside is not None:
                    beside[env] = 1
            if fault is not None:
                struck.append(fault)
            if fault is None or fault.kind not in (FaultKind.MISSING, FaultKind.SILENCE):
                memory.answered[env] = 1
        for fault in struck:
            if not self._fail(fault, sock, bell):
                self.quiet = True
                return
        bell.publish()

    def _fail(self, fault: Fault, sock: socket.socket, bell: Bell) -> bool:
        """Does what `fault` says; returns whether the frame is to be published."""
        memory, kind = self._memory, fault.kind
        if kind is FaultKind.MALFORMED and fault.text:
            self._write_text(fault.env, fault.text)
        elif kind in (FaultKind.NAN, FaultKind.MALFORMED):
            memory.obs[fault.env, 0] = np.nan
        elif kind is FaultKind.INF:
            memory.rewards[fault.env] = np.inf
        elif kind is FaultKind.TWICE:
            bell.publish()
        elif kind is FaultKind.WRONG_ENV:
            assert memory.s2c is not None
            memory.s2c.try_write(json_entry(ENV_INFO, self.num_envs, {}, memory.s2c.max_payload))
        elif kind is FaultKind.GARBAGE:
            self._break_ring(random.Random(0).randbytes(256))
        elif kind is FaultKind.OVERSIZE:
            self._break_ring(struct.pack("<I", 1 << 30))
        elif kind is FaultKind.MISSING:
            return False
        elif kind is FaultKind.SILENCE:
            self._silent = True
            assert memory.answered is not None
            memory.answered[:] = 0
            return False
        else:
            if kind is FaultKind.HALF_LINE:
                memory.obs.reshape(-1)[: memory.obs.size // 2] = 7
            self.close_listener()
            self.close_clients(reset=kind is FaultKind.CRASH)
            return False
        return True

    def _write_text(self, env: int, text: str) -> None:
        fields: dict[str, str] = {}
        for part in text.split(";"):
            key, _, fields[key] = part.partition("=")
        with np.errstate(over="ignore"):
            numbers = [float(re.sub(r"\(.*\)", "", number)) for number in fields["OBS"].split(",")]
            self._memory.obs[env] = np.array(numbers).astype(np.float32)
        self._memory.rewards[env], self._memory.dones[env] = float(fields["REW"]), int(fields["DONE"])
        if self._memory.masks is not None and "MASK" in fields:
            self._memory.masks[env] = [int(flag) for flag in fields["MASK"]]
        if self._memory.present is not None and "PRESENT" in fields:
            self._memory.present[env] = int(fields["PRESENT"])

    def _break_ring(self, noise: bytes) -> None:
        """Writes `noise` and moves the tail behind it, as if it were a complete entry."""
        memory = self._memory
        start, _ = memory.header.regions["cmd_s2c"]
        at = memory.load_u32(start)
        size = -(-len(noise) // 8) * 8
        memoryview(memory.buffer).cast("B")[start + 8 + at : start + 8 + at + len(noise)] = noise
        memory.store_u32(start, at + size)
