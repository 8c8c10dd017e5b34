"""What a page may send, however it is cut: the socket gives the lines that were sent, or names what is wrong."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from ue_rl.plugins.web.page_socket import PageSocket
from ue_rl.system.errors import LineTooLong, MalformedMessage, UeRlError

WRONG = (OSError, UeRlError)


@pytest.fixture
def ends() -> Iterator[tuple[PageSocket, socket.socket]]:
    """A page's socket, and the other end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        mine, _ = listener.accept()
    mine.settimeout(30)
    theirs.settimeout(30)
    yield PageSocket(mine, ServerProtocol(state=State.OPEN)), theirs
    mine.close()
    theirs.close()


def frame(text: bytes, opcode: Opcode = Opcode.TEXT, fin: bool = True) -> bytes:
    return Frame(opcode, text, fin).serialize(mask=True)


def read(page: PageSocket, size: int) -> bytes:
    got, until = b"", time.monotonic() + 20
    while len(got) < size and time.monotonic() < until:
        try:
            got += page.recv(size - len(got))
        except BlockingIOError:  # a ping or the like
            continue
    return got


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 300_000])
def test_lengths_in_both_directions(ends: tuple[PageSocket, socket.socket], size: int) -> None:
    page, theirs = ends
    line = size * b"7" + b"\n"
    sending = threading.Thread(target=lambda: theirs.sendall(frame(line[:-1])))
    sending.start()
    assert read(page, len(line)) == line
    sending.join()
    got = bytearray()

    def receive() -> None:
        while len(got) < len(Frame(Opcode.TEXT, line[:-1]).serialize(mask=False)):
            got.extend(theirs.recv(65_536))

    receiving = threading.Thread(target=receive)
    receiving.start()
    assert page.send(line) == len(line)
    receiving.join(10)
    assert bytes(got) == Frame(Opcode.TEXT, line[:-1]).serialize(mask=False)


def test_a_read_waits_as_long_as_it_may(ends: tuple[PageSocket, socket.socket]) -> None:
    """A page may be slow, and its pings are no lines."""
    page, theirs = ends
    page.settimeout(20)
    later = threading.Timer(0.3, lambda: theirs.sendall(frame(b"", Opcode.PING)))
    latest = threading.Timer(0.6, lambda: theirs.sendall(frame(b"OBS=1")))
    later.start()
    latest.start()
    assert page.recv(100) == b"OBS=1\n"
    page.settimeout(0.3)
    with pytest.raises(TimeoutError):
        page.recv(100)
    page.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        page.recv(100)


@pytest.mark.parametrize("seed", range(20))
def test_lines_come_as_they_were_sent_however_they_are_cut(ends: tuple[PageSocket, socket.socket], seed: int) -> None:
    """Messages in one frame or many, pings between and within them, in pieces of any size."""
    page, theirs = ends
    rng = random.Random(seed)
    sent, lines = b"", b""
    for _ in range(60):
        text = bytes(rng.choices(b"OBS=0123456789;,\xc3\xa9", k=rng.choice((0, 1, 9, 125, 126, 400))))
        lines += text + b"\n"
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.choice((0, 0, 0, 1, 3))))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for n, part in enumerate(parts):
            sent += frame(part, Opcode.CONT if n else Opcode.TEXT, n + 1 == len(parts))
            if rng.random() < 0.2:
                sent += frame(b"are you there", Opcode.PING)

    def send() -> None:
        at = 0
        while at < len(sent):
            step = rng.choice((1, 2, 5, 50, 3000))
            theirs.sendall(sent[at : at + step])
            at += step

    sending = threading.Thread(target=send)
    sending.start()
    assert read(page, len(lines)) == lines
    sending.join()


@pytest.mark.parametrize("seed", range(300))
def test_rubbish_is_named(ends: tuple[PageSocket, socket.socket], seed: int) -> None:
    """Bytes of any kind, and right frames with a bit of them turned: lines, or an error; never anything else."""
    page, theirs = ends
    rng = random.Random(seed)
    said = bytearray(frame(b"OBS=1;REW=0;DONE=0;ENV=0") + frame(b"x", Opcode.PING) + frame(b"OBS=2", fin=False))
    if seed % 3 == 0:
        said = bytearray(rng.randbytes(rng.randrange(1, 300)))
    else:
        for _ in range(rng.choice((1, 1, 3))):
            said[rng.randrange(len(said))] ^= 1 << rng.randrange(8)
    theirs.sendall(said)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(WRONG) as ended:
        for _ in range(1000):
            try:
                page.recv(4096)
            except BlockingIOError:
                continue
    assert isinstance(ended.value, (ConnectionResetError, MalformedMessage, LineTooLong)), repr(ended.value)
    with pytest.raises(type(ended.value)):
        page.recv(1)  # and again
    with pytest.raises(type(ended.value)):
        page.send(b"ACT=1;ENV=0\n")
