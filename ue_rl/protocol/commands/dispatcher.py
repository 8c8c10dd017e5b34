"""Dispatcher: answers requests, handlers by method. The engine's side of the commands, polled from its tick; no I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ue_rl.protocol.commands.envelope import Command, decode, encode, method_name, mismatch
from ue_rl.system.errors import ConfigurationError, UeRlError, shorten

_log = logging.getLogger("ue_rl.protocol.commands.dispatcher")

_LONGEST_ERROR = 2000

Handler = Callable[[Any, Command], Any]


class Dispatcher:
    """Answers requests: handlers by method.

    A handler gets (payload, command) and returns the answer's payload, or None for an empty one. It is called with the
    payload that PAYLOADS names for its method; a game's own method checks for itself. What it raises becomes the
    answer's error message: an error in one command must not end the game.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}

    def register(self, method: int, handler: Handler) -> None:
        """Sets the handler of `method`, a Method or a number of your own from 1000 on."""
        self._handlers[int(method)] = handler

    @property
    def methods(self) -> list[int]:
        """What has a handler."""
        return sorted(self._handlers)

    def answer(self, data: bytes, longest: int = 2**31) -> bytes | None:
        """The answer to one ring entry; None where none is wanted.

        Args:
            longest: bytes that an answer may have; in place of a longer one goes an error message.

        Raises:
            MalformedMessage: the entry is no envelope.
        """
        command = decode(data, "trainer")
        number = command.correlation_id
        method = command.method
        payload, problem = self._handle(command)
        if not number:
            if problem is not None:
                _log.warning("a command without an answer failed: %s", problem)
            return None
        if problem is None:
            try:
                answer = encode(method, payload, number)
                if len(answer) <= longest:
                    return answer
                problem = f"the answer has {len(answer)} bytes, the command ring takes {longest}"
            except ConfigurationError as error:
                problem = str(error)
            _log.warning("the handler of method %s: %s", method_name(method), problem)
        return encode(method, None, number, shorten(problem, max(16, min(_LONGEST_ERROR, (longest - 100) // 4))))

    def _handle(self, command: Command) -> tuple[Any, str | None]:
        """(payload, None) of the answer, or (None, why not)."""
        handler = self._handlers.get(command.method)
        if handler is None:
            return None, f"this engine does not know method {method_name(command.method)}"
        problem = mismatch(command.method, command.payload)
        if problem is not None:
            return None, problem
        try:
            payload = handler(command.payload, command)
        except UeRlError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - the game's own code: the requester is told, the game goes on
            _log.exception("the handler of method %s failed", method_name(command.method))
            return None, f"{type(error).__name__}: {error}"
        return payload, mismatch(command.method, payload, answer=True) if command.correlation_id else None
