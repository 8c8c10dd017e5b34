"""PageSocket: the WebSocket of a page as a socket: each line that is sent is a message, each message that comes a line.

It is what connections/tcp/link.py needs of a socket with a protocol of Python's in it, as Python's own of TLS. There
is no thread behind it: whoever waits for a line reads the WebSocket's frames himself, so that a step costs no change of
threads.

A binary message (FEATURES=BINARY) stands among the lines as one that ends with the byte ROWS_CAME, which no text has;
what it holds `next_rows` gives.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # a wheel without its compiled part
    from websockets.utils import apply_mask

from ue_rl.plugins.web.rows import RowMessage
from ue_rl.protocol.text.calls import PICTURE_LIMIT
from ue_rl.system.compiled import load
from ue_rl.system.errors import LineTooLong, MalformedMessage
from ue_rl.system.spin import TCP_SLICE_MS, TRAINER_SPIN_US

LONGEST = PICTURE_LIMIT  # bytes of a message: no line of a session that a page can take part in is longer
_AT_ONCE = 65_536  # bytes that are read from the system at once
ROWS_CAME = 0xFF  # stands nowhere in UTF-8
# Of a frame's first byte: a whole message of text or of bytes, and bits that have no meaning; of its second: it is
# masked.
_TEXT = 0x81
_BINARY = 0x82
_OPCODE = 0x0F
_BITS = 0x70
_MASKED = 0x80
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_LENGTHS = {126: struct.Struct("!H"), 127: struct.Struct("!Q")}  # where the length does not fit into the second byte
_GONE: dict[int, str] = {
    CloseCode.NORMAL_CLOSURE: "the page has closed its connection",
    CloseCode.GOING_AWAY: "the page was closed, reloaded or frozen",
}


class PageSocket:
    """See the module's docstring.

    Args:
        sock: a connected socket, owned from now on. protocol: its WebSocket, opened on it.
    """

    def __init__(self, sock: socket.socket, protocol: ServerProtocol) -> None:
        self._sock = sock
        self._protocol = protocol
        self._raw = bytearray()  # what has come of a frame that is not whole yet
        self._space = memoryview(bytearray(_AT_ONCE))
        self._split = False  # a message has begun, and its last frame has not come
        self._part: bytearray | None = None  # of a binary message in several frames
        self._rows: deque[bytes] = deque()  # binary messages that nobody has read yet
        self._longest_rows = 0  # bytes of a binary message; 0: none may come
        self._awaits_rows = False  # the next message, if it is binary, is `_first_rows`
        self._first_rows: bytes | None = None
        self._come = bytearray()  # lines that nobody has read yet
        self._unsent = memoryview(b"")
        self._framed = False  # what `send` was given has become frames, and they are not all sent
        self._over: Exception | None = None  # why nothing comes any more
        # Spins before it blocks, where a wait is allowed at all.
        fast = None
        if os.name == "posix" and not isinstance(sock, ssl.SSLSocket):
            fast = getattr(load("kernels"), "receive", None)
        self._spinning: Callable[..., int] | None = fast
        self._take_events()

    # -- what a layered socket has beside a plain one

    def pending(self) -> int:
        """Bytes that have come and were not read."""
        if isinstance(self._sock, ssl.SSLSocket):
            return len(self._come) + self._sock.pending()
        return len(self._come)

    # -- binary messages

    def take_rows(self, longest: int) -> None:
        """From now on binary messages of so many bytes or less may come."""
        self._longest_rows = longest

    def next_rows(self) -> bytes:
        """The binary message that a line stands for, each once and in their order."""
        return self._rows.popleft()

    def receive_rows(self) -> bytes | None:
        """The next message, if it is binary, comes within a slice of a wait, and stands behind no line.

        It is as if it had been read as a line, without the way through one. None: `recv_into` says what has come.

        Raises:
            OSError: the page has gone.
        """
        if self._come or self._raw or self._split or self._over is not None:
            return None
        self._awaits_rows = True
        try:
            self._read(self._sock.gettimeout())
        except TimeoutError:
            pass
        finally:
            self._awaits_rows = False
        message = self._first_rows
        self._first_rows = None
        return message

    # -- as a socket

    def send(self, data: bytes | memoryview) -> int:
        """Sends whole lines, or a RowMessage: all or, where it raises BlockingIOError or TimeoutError, a part.

        Then it is to be called again with the same, as of TLS.

        Raises:
            OSError: the page has gone, or nothing can be sent now.
        """
        if not self._framed:
            if self._over is not None:
                raise self._over
            if isinstance(data, RowMessage):
                frames = [_head(len(data), _BINARY) + data]
            else:
                lines = bytes(data).split(b"\n")
                assert not lines.pop(), "lines end with a line feed"
                frames = [_head(len(line)) + line for line in lines]
            if self._unsent:
                self._queue(frames)
            else:
                self._unsent = memoryview(b"".join(frames))
            self._framed = True
        self._flush()
        self._framed = False
        return len(data)

    def sendall(self, data: bytes) -> None:
        """Sends whole lines; raises OSError: as `send`."""
        self.send(data)

    def recv_into(self, space: memoryview | bytearray) -> int:
        """Puts what has come of lines into `space`, and says how much that is; never 0: the end is an error.

        Raises:
            BlockingIOError, TimeoutError: nothing has come, or no lines. ConnectionResetError: the page has gone.
            MalformedMessage, LineTooLong: what came is no text within a WebSocket, or too much.
        """
        if not self._come:
            self._receive()
        come = self._come
        count = len(come)
        if count <= len(space):
            space[:count] = come
            come.clear()
            return count
        count = len(space)
        space[:] = come[:count]
        del come[:count]
        return count

    def recv(self, size: int) -> bytes:
        """Up to so many bytes of lines; errors as `recv_into`."""
        space = bytearray(size)
        return bytes(space[: self.recv_into(space)])

    def shutdown(self, how: int) -> None:
        """Ends the connection, with a word to the page where nothing is on its way to it."""
        if not self._framed and not self._unsent:
            self.close_because(CloseCode.GOING_AWAY, "the trainer has ended")
        self._sock.shutdown(how)

    def close(self) -> None:
        """Closes the socket."""
        self._sock.close()

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """See socket.socket; so are the others."""
        self._sock.setsockopt(level, option, value)

    def setblocking(self, flag: bool) -> None:
        """See socket.socket."""
        self._sock.setblocking(flag)

    def settimeout(self, seconds: float | None) -> None:
        """See socket.socket."""
        self._sock.settimeout(seconds)

    def gettimeout(self) -> float | None:
        """See socket.socket."""
        return self._sock.gettimeout()

    def fileno(self) -> int:
        """See socket.socket."""
        return self._sock.fileno()

    def getsockname(self) -> Any:
        """See socket.socket."""
        return self._sock.getsockname()

    def getpeername(self) -> Any:
        """See socket.socket."""
        return self._sock.getpeername()

    # -- for the port

    def close_because(self, code: int, reason: str) -> None:
        """Tells the page why it is closed; never raises, and does not close the socket."""
        with contextlib.suppress(Exception):  # it may be closed, or full, or be used by another thread
            self._protocol.send_close(code, reason)
            self._queue(self._protocol.data_to_send())
            self._flush()

    def is_alive(self) -> bool:
        """Is the page still there, as far as can be told without reading? (Only Linux can tell that it has gone.)"""
        if self._over is not None or self._sock.fileno() < 0:
            return False
        if sys.platform != "linux":
            return True
        poll = select.poll()
        try:
            poll.register(self._sock, select.POLLRDHUP)
        except ValueError:  # another thread has closed it meanwhile
            return False
        return not poll.poll(0)

    # -- frames

    def _receive(self) -> None:
        """Reads until there is something of a line; raises as `recv_into`."""
        timeout = self._sock.gettimeout()
        until = 0.0
        while not self._come:
            if self._over is not None:
                raise self._over
            if self._read(timeout) or self._come or self._over is not None:
                continue
            if timeout == 0:
                raise BlockingIOError("no line has come")
            if timeout is not None:
                until = until or time.monotonic() + timeout - TCP_SLICE_MS / 1000
                if time.monotonic() >= until:
                    raise TimeoutError("no line has come in time")

    def _read(self, timeout: float | None) -> bool:
        """Reads once, for a part of the time that may be waited; has something come?"""
        if self._spinning is not None and timeout != 0:
            count = self._spinning(self._sock.fileno(), self._space, TRAINER_SPIN_US, TCP_SLICE_MS)
        else:
            try:
                count = self._sock.recv_into(self._space)
            except (BlockingIOError, ssl.SSLWantReadError):
                count = -1
        if count < 0:
            return False
        if count:
            if self._raw or self._split or not self._take_one(count):
                self._raw += self._space[:count]
                self._take_frames()
                if self._raw and _QUICKACK is not None:
                    # Node sends a long message in several writes, and waits with the next for the system's word that
                    # the last has come, which may take 40 ms.
                    self._sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        else:
            self._protocol.receive_eof()
            self._take_events()
        return True

    def _take_one(self, count: int) -> bool:
        """Takes a message in one frame, if that is all that came, as in nearly every step: without a copy."""
        space = self._space
        first = space[0]
        if count < 6 or first not in (_TEXT, _BINARY) or not space[1] & _MASKED:
            return False
        length = space[1] & 0x7F
        begin = 2
        further = _LENGTHS.get(length)
        if further is not None:
            if count < begin + further.size:
                return False
            (length,) = further.unpack_from(space, begin)
            begin += further.size
        if begin + 4 + length != count:
            return False
        if first == _BINARY and not self._may_be_rows(length):
            return True
        self._take_whole(first, apply_mask(space[begin + 4 : count], bytes(space[begin : begin + 4])))
        return True

    def _take_frames(self) -> None:
        """Reads the whole frames that have come: messages of one frame here, all else, and what is wrong, the library.

        It takes three times as long for a message, and that is most of what the trainer does in a step.
        """
        raw = self._raw
        at = 0
        while self._over is None and len(raw) - at >= 2:
            length = raw[at + 1] & 0x7F
            begin = at + 2
            further = _LENGTHS.get(length)
            if further is not None:
                if len(raw) < begin + further.size:
                    break
                (length,) = further.unpack_from(raw, begin)
                begin += further.size
            end = begin + 4 + length
            refused = raw[at] & _BITS or not raw[at + 1] & _MASKED or length > LONGEST
            if raw[at] & _OPCODE == Opcode.BINARY and not refused and not self._may_be_rows(length):
                break
            if not refused and len(raw) < end:
                break
            if raw[at] in (_TEXT, _BINARY) and not refused and not self._split:
                self._take_whole(raw[at], apply_mask(raw[begin + 4 : end], raw[begin : begin + 4]))
            else:
                if refused:
                    end = len(raw)
                self._protocol.receive_data(raw[at:end])
                self._take_events()
            at = end
        del raw[:at]

    def _take_events(self) -> None:
        protocol = self._protocol
        for event in protocol.events_received():
            if isinstance(event, Frame) and self._over is None:
                self._take(event)
        answers = protocol.data_to_send()  # to a ping or a close
        if answers:
            self._queue(answers)
            with contextlib.suppress(OSError):  # else with what is sent next
                self._flush()
        if self._over is None and protocol.parser_exc is not None:
            self._over = _broken(protocol.parser_exc)
        elif self._over is None and protocol.close_rcvd is not None:
            close = protocol.close_rcvd
            text = _GONE.get(close.code, "the page has closed its connection")
            self._over = ConnectionResetError(f"{text} (WebSocket code {close.code}) {close.reason}".strip())

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self._part = bytearray()
        elif frame.opcode is Opcode.TEXT:
            self._part = None
        elif frame.opcode is not Opcode.CONT:
            return
        part = self._part
        if part is None:
            self._add(frame.data, frame.fin)
        elif self._may_be_rows(len(part) + len(frame.data)):
            part += frame.data
            self._split = not frame.fin
            if frame.fin:
                self._part = None
                self._add_rows(bytes(part))

    def _take_whole(self, first: int, message: bytes) -> None:
        if first == _BINARY:
            self._add_rows(message)
        else:
            self._add(message, True)

    def _may_be_rows(self, length: int) -> bool:
        """May a binary message of so many bytes come? If not the connection is over."""
        if length <= self._longest_rows:
            return True
        if self._longest_rows:
            self._over = LineTooLong(
                "the page has sent a binary message that is too long",
                fault="engine",
                expected=f"at most {self._longest_rows} bytes",
                got=f"{length} bytes or more",
            )
        else:
            self._over = MalformedMessage(
                "the page has sent a binary message",
                fault="engine",
                expected="each line as a message of text, unless FEATURES of the handshake has BINARY",
                got=f"{length} bytes",
            )
        return False

    def _add_rows(self, message: bytes) -> None:
        if self._awaits_rows and not self._come:
            self._awaits_rows = False
            self._first_rows = message
            return
        self._rows.append(message)
        self._come += b"(a binary message of %d bytes)%c\n" % (len(message), ROWS_CAME)

    def _add(self, text: bytes | bytearray | memoryview, whole: bool) -> None:
        if ROWS_CAME in text:
            self._over = MalformedMessage(
                "the page has sent text that is no UTF-8",
                fault="engine",
                expected="no byte 255, which stands nowhere in UTF-8",
                got=bytes(text[:80]),
            )
            return
        self._come += text
        self._split = not whole
        if whole and text[-1:] != b"\n":
            self._come += b"\n"

    def _queue(self, frames: list[bytes]) -> None:
        """Behind what is unsent. An empty one asks for the end of this direction, which `shutdown` brings."""
        self._unsent = memoryview(b"".join([self._unsent, *frames]))

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except ssl.SSLWantWriteError as error:
                raise BlockingIOError("nothing can be sent now") from error
            self._unsent = self._unsent[sent:]


def _head(length: int, first: int = _TEXT) -> bytes:
    """Of a frame with a whole message, which a server does not mask."""
    if length < 126:
        return bytes((first, length))
    word = 127
    if length < 65_536:
        word = 126
    return bytes((first, word)) + _LENGTHS[word].pack(length)


def _broken(why: Exception) -> Exception:
    """The error for what the WebSocket's own rules refuse, or for an end without a word."""
    if isinstance(why, EOFError):
        return ConnectionResetError("the connection to the page was cut")
    if isinstance(why, PayloadTooBig):
        return LineTooLong(
            "the page has sent a message that is too long",
            fault="engine",
            expected=f"at most {LONGEST} bytes",
            got=str(why),
        )
    return MalformedMessage(
        "what came is no WebSocket's", fault="engine", expected="frames as browsers write them", got=str(why)
    )
