"""Steps in binary (FEATURES=BINARY): what is read is what text says, and what is wrong is named, on both sides."""

from __future__ import annotations

import itertools
import json
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection

from tests.plugins.web.pages import NODE, WEB, Page, Play, needs_node, node
from tests.support.listening import free_port
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.recording import RecordingTransport, Trace, replay_trainer
from ue_rl.plugins.web.rows import RowCodec, shown
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system import errors
from ue_rl.system.compiled import lacking

GAMES = Path(__file__).with_name("games.mjs")
CONFIG = (
    "CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3;VERSION=1;CHANNEL=SHARED;ACT_SPACE=DISCRETE(3);"
    "FEATURES=SEQ,TRUNC,INFO,MASK,BINARY"
)
SPEC = decode_handshake(CONFIG.encode())


def answer(
    ids: list[int],
    obs: Any,
    rewards: Any = None,
    ends: list[int] | None = None,
    masks: Any = None,
    number: int = 1,
    **head: Any,
) -> bytes:
    """As a page writes it; `head`: magic, kind, rows, width, marks or nothing, where they are wrong."""
    seen = np.asarray(obs, "<f4").reshape(len(ids), np.shape(obs)[-1] if np.ndim(obs) > 1 else 2)
    marks = 0 if masks is None else np.shape(masks)[1]
    right = {"magic": b"URB1", "kind": 2, "rows": len(ids), "width": seen.shape[1], "marks": marks, "nothing": 0}
    said = {**right, **head}
    begin = said.pop("magic") + struct.pack("<5IQ", *said.values(), number)
    rewards = np.zeros(len(ids)) if rewards is None else rewards
    parts = [np.asarray(ids, "<u4"), np.asarray(rewards, "<f4"), seen, np.asarray(ends or [0] * len(ids), "u1")]
    if masks is not None:
        parts.append(np.asarray(masks, "u1"))
    return bytes(begin) + b"".join(part.tobytes() for part in parts)


needs_kernels = pytest.mark.skipif("kernels" in lacking(), reason="there are no compiled kernels here")


def asked() -> StepBuffers:
    """Of all envs."""
    buffers = StepBuffers.of(SPEC)
    buffers.pending[:] = 1
    return buffers


def read(message: bytes, buffers: StepBuffers) -> int:
    codec = RowCodec(SPEC)
    return codec.decode_states(message, codec.read_head(message), buffers)


def parts(buffers: StepBuffers) -> list[bytes]:
    named = ("obs", "rewards", "dones", "truncated", "pending", "masks")
    return [getattr(buffers, name).tobytes() for name in named]


@pytest.mark.parametrize("seed", range(50))
def test_an_answer_is_read_as_its_text_is(seed: int) -> None:
    """Any bits of a float32, any envs in any order, any ends and masks."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(3)[: rng.integers(1, 4)].tolist() if seed % 2 else [0, 1, 2]
    bits = rng.integers(0, 2**32, (len(ids), 3), dtype=np.uint32).view(np.float32)
    numbers = np.where(np.isfinite(bits), bits, np.float32(-0.0))
    ends = rng.choice([0, 0, 1, 3], len(ids)).tolist()
    masks = rng.integers(0, 2, (len(ids), 3))
    masks[:, 1] = 1
    sent = None if seed % 3 == 0 else masks
    rows = []
    for n, env in enumerate(ids):
        seen = ",".join(repr(float(x)) for x in numbers[n, :2])
        row = f"OBS={seen};REW={float(numbers[n, 2])!r};DONE={int(ends[n] > 0)};ENV={env}"
        row += ";TRUNC=1" * (ends[n] == 3)
        if sent is not None:
            row += ";MASK=" + "".join(map(str, masks[n]))
        rows.append(row)
    from_text = asked()
    from_rows = asked()
    for buffers in (from_text, from_rows):
        buffers.masks[:] = 0
    Codec(SPEC).decode_states(("||".join(rows) + ";SEQ=1").encode(), from_text, number=1)
    assert read(answer(ids, numbers[:, :2], numbers[:, 2], ends, sent), from_rows) == len(ids)
    assert parts(from_rows) == parts(from_text)


ZEROS = np.zeros((3, 2))
ALL = [0, 1, 2]
FREE = np.ones((3, 3))
WRONG: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", errors.MalformedMessage, "cut off.*32 bytes"),
    "cut in its head": (answer(ALL, ZEROS)[:31], errors.MalformedMessage, "cut off"),
    "cut": (answer(ALL, ZEROS)[:-1], errors.MalformedMessage, "of 3 rows has 82 bytes.*expected 83"),
    "longer": (answer(ALL, ZEROS) + b"\0", errors.MalformedMessage, "has 84 bytes"),
    "another form": (answer(ALL, ZEROS, magic=b"URB2"), errors.MalformedMessage, "of another form.*55 52 42 32"),
    "big-endian": (answer(ALL, ZEROS, magic=b"1BRU"), errors.MalformedMessage, "of another form"),
    "a step": (answer(ALL, ZEROS, kind=1), errors.MalformedMessage, "no answer.*kind 1"),
    "not zero": (answer(ALL, ZEROS, nothing=1), errors.MalformedMessage, "no answer"),
    "wider": (answer(ALL, np.zeros((3, 3))), errors.WrongCount, "3 numbers .field OBS.; expected 2 numbers"),
    "other flags": (answer(ALL, ZEROS, masks=np.ones((3, 2))), errors.WrongCount, "2 mask flags .field MASK."),
    "no rows": (answer([], np.zeros((0, 2)), width=2), errors.MalformedMessage, "0 rows"),
    "huge": (answer(ALL, ZEROS, rows=2**32 - 1), errors.MalformedMessage, "4294967295 rows"),
    "no number": (answer(ALL, ZEROS, number=0), errors.MalformedMessage, "SEQ"),
    "a huge number": (answer(ALL, ZEROS, number=10**18), errors.MalformedMessage, "SEQ"),
    "no such env": (answer([0, 1, 3], ZEROS), errors.UnknownEnv, "does not exist: 3"),
    "a huge env": (answer([0, 2**32 - 1, 1], ZEROS), errors.UnknownEnv, "does not exist: 4294967295"),
    "an env twice": (answer([2, 1, 2], ZEROS), errors.RepeatedEnv, "answered twice .env 2, field ENV."),
    "nan": (answer([2, 1, 0], [0, 0, 0, np.nan, 0, 0]), errors.NonFiniteValue, "env 1, field OBS.*nan at index 1"),
    "inf": (answer([2, 0, 1], [-np.inf, 0, 0, 0, 0, 0]), errors.NonFiniteValue, "env 2, field OBS.*-inf at index 0"),
    "nan reward": (answer(ALL, ZEROS, [0, 0, np.nan]), errors.NonFiniteValue, "env 2, field REW.*nan"),
    "trunc alone": (answer(ALL, ZEROS, ends=[0, 2, 0]), errors.MalformedMessage, "TRUNC=1 came with DONE=0 .env 1,"),
    "no flag": (answer(ALL, ZEROS, ends=[0, 0, 4]), errors.MalformedMessage, "written as 4 .env 2, field DONE."),
    "no mask flag": (
        answer(ALL, ZEROS, masks=FREE + np.array([1, 0, 0])),
        errors.MalformedMessage,
        "neither 0 nor 1 .env 0, field MASK.",
    ),
    "no choice": (
        answer([2, 0, 1], ZEROS, ends=[1, 0, 0], masks=FREE * [[0], [1], [0]]),
        errors.MalformedMessage,
        "without a choice: number 0 .env 1, field MASK.",
    ),
}


@pytest.mark.parametrize(("message", "kind", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_answer_is_named_and_nothing_of_it_read(message: bytes, kind: type[Exception], words: str) -> None:
    buffers = asked()
    before = parts(buffers)
    with pytest.raises(kind, match=words) as refused:
        read(message, buffers)
    assert isinstance(refused.value, errors.UeRlError)
    assert refused.value.fault == "engine"
    assert parts(buffers) == before


PLAIN = decode_handshake(CONFIG.replace(",MASK", "").encode())


@pytest.mark.parametrize(("message", "kind", "words"), WRONG.values(), ids=WRONG.keys())
def test_the_compiled_reader_leaves_what_is_wrong(message: bytes, kind: type[Exception], words: str) -> None:
    buffers = asked()
    before = parts(buffers)
    assert RowCodec(PLAIN).read_usual(message, buffers, 1) == 0
    assert parts(buffers) == before


@needs_kernels
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(3, 20))])
def test_the_compiled_reader_reads_the_same(seed: int) -> None:
    """Right answers, of which a byte is changed or not: what it reads is right, and the same."""
    rng = np.random.default_rng(seed)
    compiled = RowCodec(PLAIN, compiled=True)
    pure = RowCodec(PLAIN, compiled=False)
    read_by_both = 0
    for _ in range(500):
        ids = sorted(rng.permutation(3)[: rng.integers(1, 4)].tolist())
        numbers = rng.normal(size=(len(ids), 3))
        message = bytearray(answer(ids, numbers[:, :2], numbers[:, 2], rng.choice([0, 1, 3], len(ids)).tolist()))
        if rng.random() < 0.7:
            message[rng.integers(len(message))] = rng.integers(256)
        buffers = asked()
        buffers.pending[rng.integers(3)] = rng.integers(2)
        others = asked()
        others.pending[:] = buffers.pending
        before = parts(buffers)
        count = compiled.read_usual(bytes(message), buffers, 1)
        assert pure.read_usual(bytes(message), others, 1) == 0
        try:
            head = pure.read_head(bytes(message))
            expected = pure.decode_states(bytes(message), head, others)
        except errors.ProtocolError:
            assert count == 0
        else:
            in_order = np.frombuffer(message, "<u4", head.rows, 32)
            usual = head.number == 1 and (np.diff(in_order.astype(np.int64)) > 0).all()
            assert count == (expected if usual else 0)
        if count:
            read_by_both += 1
            assert parts(buffers) == parts(others)
        else:
            assert parts(buffers) == before
    assert read_by_both > 50


@needs_kernels
def test_the_compiled_reader_checks_its_arrays() -> None:
    codec = RowCodec(PLAIN)
    buffers = asked()
    buffers.dones = np.zeros(2, np.uint8)
    with pytest.raises(ValueError, match="one number of envs"):
        codec.read_usual(answer(ALL, ZEROS), buffers, 1)
    buffers.dones = np.zeros(3, np.int32)
    with pytest.raises(TypeError, match="uint8"):
        codec.read_usual(answer(ALL, ZEROS), buffers, 1)


def test_an_env_that_was_not_asked() -> None:
    buffers = asked()
    buffers.pending[1] = 0
    with pytest.raises(errors.RepeatedEnv, match=r"not asked, .*env 1, field ENV."):
        read(answer(ALL, ZEROS), buffers)


def test_the_largest_finite_numbers_are_read() -> None:
    """Their squares are infinite."""
    buffers = asked()
    read(answer(ALL, np.full((3, 2), -3e38), [3e38] * 3), buffers)
    assert np.isfinite(buffers.obs).all()
    message = RowCodec(SPEC).encode_step(np.full((3, 1), 3e38, np.float32), 5)
    assert np.frombuffer(message, "<f4", 3, 44).tolist() == [np.float32(3e38)] * 3


def test_an_action_that_is_not_finite_is_the_callers_fault() -> None:
    with pytest.raises(errors.ActionError, match=r"env 1.*nan at index 0"):
        RowCodec(SPEC).encode_step(np.array([[0], [np.nan], [0]], np.float32), 1)


# -- over a connection


@contextmanager
def playing(play: Play, config: str = CONFIG) -> Iterator[BaseTransport]:
    """A page that shakes hands, answers the reset in text, and then does as `play`."""

    def begin(page: ClientConnection) -> None:
        page.send(config)
        page.send(zeros(next(line for line in page if line)))
        play(page)

    port = free_port()
    with Page(port, begin), open_transport(f"page://127.0.0.1:{port}", wait=10.0, timeout=10.0) as transport:
        transport.reset()
        transport.receive()
        yield transport


def zeros(request: Any) -> str:
    """The answer in text to a request in text."""
    assert isinstance(request, str)
    rows = [f"OBS=0,0;REW=0;DONE=0;ENV={env}" for env in range(3)]
    return "||".join(rows) + request[request.rindex(";SEQ=") :]


def number_of(request: Any) -> int:
    """That of a step in binary."""
    assert isinstance(request, bytes)
    return int(struct.unpack_from("<Q", request, 24)[0])


def a_step(transport: BaseTransport) -> StepBuffers:
    transport.send_actions(np.full((3, 1), 2, np.float32))
    return transport.receive()


def test_a_step_as_it_is_sent() -> None:
    came = []

    def play(page: ClientConnection) -> None:
        came.append(page.recv())
        page.send(answer(ALL, np.arange(6), [0.5, -1, 2], [0, 1, 3], number=number_of(came[0])))
        page.recv()

    with playing(play) as transport:
        states = a_step(transport)
        assert states.obs.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert states.rewards.tolist() == [0.5, -1, 2]
        assert states.dones.tolist() == [0, 1, 1]
        assert states.truncated.tolist() == [0, 0, 1]
    expected = b"URB1" + struct.pack("<5IQ", 1, 3, 1, 0, 0, 2) + struct.pack("<3I3f", 0, 1, 2, 2, 2, 2)
    assert came == [expected]


def test_text_and_binary_may_alternate() -> None:
    def play(page: ClientConnection) -> None:
        for n in itertools.count():
            request = page.recv()
            if isinstance(request, str):
                page.send(zeros(request))
            elif n % 2:
                rows = [f"OBS={n},0;REW=0;DONE=0;ENV={env};INFO=%7B%22n%22%3A{n}%7D" for env in ALL]
                page.send("||".join(rows) + f";SEQ={number_of(request)}")
            else:
                page.send(answer(ALL, np.full((3, 2), n), number=number_of(request)))

    with playing(play) as transport:
        for n in range(6):
            states = a_step(transport)
            assert states.obs[:, 0].tolist() == [n] * 3
            assert states.infos == ({env: {"n": n} for env in ALL} if n % 2 else {})
        transport.reset()
        assert not transport.receive().obs.any()


@pytest.mark.parametrize("sizes", [[1], [31, 33], [40, 40, 1]])
def test_a_message_in_several_frames(sizes: list[int]) -> None:
    def play(page: ClientConnection) -> None:
        message = answer(ALL, np.ones((3, 2)), number=number_of(page.recv()))
        pieces = []
        for size in sizes:
            pieces.append(message[:size])
            message = message[size:]
        page.send(iter([*pieces, message]))
        page.recv()

    with playing(play) as transport:
        assert a_step(transport).obs.all()


def to_a_step(make: Callable[[int], bytes | str]) -> Play:
    def play(page: ClientConnection) -> None:
        page.send(make(number_of(page.recv())))
        page.recv()

    return play


def in_many_frames(page: ClientConnection) -> None:
    """Without an end."""
    page.recv()
    page.socket.sendall(Frame(Opcode.BINARY, bytes(30), False).serialize(mask=True))
    for _ in range(10):
        page.socket.sendall(Frame(Opcode.CONT, bytes(30), False).serialize(mask=True))
    page.recv()


def announced_and_not_sent(page: ClientConnection) -> None:
    """A frame of 2^40 bytes: refused before it comes."""
    page.recv()
    page.socket.sendall(b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(40))
    page.recv()


def text_like_rows(page: ClientConnection) -> None:
    """As a binary message stands among the lines."""
    page.recv()
    page.socket.sendall(Frame(Opcode.TEXT, b"(a binary message of 83 bytes)\xff").serialize(mask=True))
    page.recv()


@pytest.mark.parametrize(
    ("play", "kind", "words"),
    [
        (to_a_step(lambda n: answer(ALL, ZEROS, number=n + 1)), errors.UnexpectedMessage, "never made"),
        (to_a_step(lambda n: answer(ALL, ZEROS, number=n - 1)), errors.UnexpectedMessage, "twice or too late"),
        (to_a_step(lambda n: answer(ALL, ZEROS, number=n)[:-1]), errors.MalformedMessage, "82 bytes"),
        (to_a_step(lambda n: bytes(400)), errors.LineTooLong, "binary message that is too long"),
        (in_many_frames, errors.LineTooLong, "binary message that is too long"),
        (announced_and_not_sent, errors.LineTooLong, "too long"),
        (to_a_step(lambda n: "OBS=\u00ff"), errors.MalformedMessage, "OBS|number"),
        (text_like_rows, errors.MalformedMessage, "no UTF-8"),
    ],
    ids=["early", "late", "cut", "long", "long in pieces", "huge", "text beyond ASCII", "text like a binary message"],
)  # fmt: skip
def test_a_fault_in_a_run(play: Play, kind: type[Exception], words: str) -> None:
    with playing(play) as transport, pytest.raises(kind, match=words):
        a_step(transport)


def test_a_page_that_did_not_announce_it_is_asked_in_text_and_must_answer_so() -> None:
    came = []

    def play(page: ClientConnection) -> None:
        came.append(page.recv())
        page.send(answer(ALL, ZEROS, number=2))
        page.recv()

    with playing(play, CONFIG.replace(",BINARY", "")) as transport:
        with pytest.raises(
            errors.MalformedMessage, match=r"binary message.*unless FEATURES of the handshake has BINARY"
        ):
            a_step(transport)
    assert isinstance(came[0], str)


def test_what_was_asked_in_text_is_answered_in_text() -> None:
    def play(page: ClientConnection) -> None:
        page.recv()
        page.send(answer(ALL, ZEROS, number=2))
        page.recv()

    with playing(play) as transport:
        transport.reset()
        with pytest.raises(errors.MalformedMessage, match=r"request of text.*SEQ 2"):
            transport.receive()


def test_an_answer_too_many_is_named_with_the_next() -> None:
    def play(page: ClientConnection) -> None:
        page.recv()
        for _ in range(2):
            page.send(answer(ALL, ZEROS, number=2))
        page.recv()

    with playing(play) as transport:
        a_step(transport)
        with pytest.raises(errors.UnexpectedMessage, match="twice or too late"):
            a_step(transport)


def test_an_answer_to_the_lost_connection_is_dropped() -> None:
    def play(page: ClientConnection) -> None:
        number = number_of(page.recv())
        page.send(answer(ALL, np.ones((3, 2)), number=3))
        page.send(answer(ALL, ZEROS, number=number))
        page.recv()

    with playing(play) as transport:
        assert transport.replace(5) == ""
        assert not a_step(transport).obs.any()
        assert transport.describe()["late answers"] == "1 dropped"


def test_a_message_is_shown_by_its_head() -> None:
    assert shown(answer(ALL, ZEROS, number=7)) == "83 bytes: kind 2, 3 rows of 2 numbers and 0 flags, SEQ 7"
    assert shown(b"\x01\xff") == "2 bytes: 01 ff"


# -- with ue_rl.js

SCRIPT = """
import {{ MultiEnvBridge, Session }} from "{module}";
class Game extends MultiEnvBridge {{
  acted = 0;
  handleResetForEnv() {{}}
  handleResponseActionsForEnv() {{ this.acted += 1; }}
  createStateStringForEnv(env) {{ return env === 1 ? seen : [env, 0.1]; }}
  calculateRewardForEnv() {{ return [reward, false]; }}
}}
let seen = [1, 0.1];
let reward = 0.1;
const told = [];
for (const [hex, numbers, worth] of {messages}) {{
  const game = new Game({{ obsSize: 2, actSize: 1, numEnvs: 3, actSpace: "DISCRETE(3)" }});
  seen = numbers.map(Number);
  reward = Number(worth);
  const message = new Uint8Array(hex.match(/../g)?.map((pair) => parseInt(pair, 16)) ?? []).buffer;
  try {{
    const [found] = new Session(game).takeRows(message);
    told.push([game.acted, Buffer.from(found).toString("hex")]);
  }} catch (error) {{
    told.push([game.acted, error.constructor.name + ": " + error.message]);
  }}
}}
console.log(JSON.stringify(told));
"""


def step(ids: list[int], actions: list[float], number: int = 1, **head: int) -> bytes:
    right = {"kind": 1, "rows": len(ids), "width": 1, "marks": 0, "nothing": 0, **head}
    begin = b"URB1" + struct.pack("<5IQ", *right.values(), number)
    return begin + np.asarray(ids, "<u4").tobytes() + np.asarray(actions, "<f4").tobytes()


RIGHT = step(ALL, [0, 1, 2], 2**55 + 1)
TO_THE_PAGE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "of 0 bytes came"),
    "cut in its head": (RIGHT[:31], "of 31 bytes came"),
    "cut": (RIGHT[:-1], "of 55 bytes, not 56"),
    "longer": (RIGHT + b"\0", "of 57 bytes, not 56"),
    "another form": (b"URB2" + RIGHT[4:], "that is no step"),
    "an answer": (step(ALL, [0, 1, 2], kind=2), "that is no step"),
    "flags": (step(ALL, [0, 1, 2], marks=3), "that is no step"),
    "not zero": (step(ALL, [0, 1, 2], nothing=1), "that is no step"),
    "wider": (step(ALL, [0, 1, 2], width=2), "ACT holds 2 numbers, not 1"),
    "no rows": (step([], []), "a step is of 1 to 3 envs"),
    "huge": (step(ALL, [0, 1, 2], rows=2**32 - 1), "a step is of 1 to 3 envs"),
    "no number": (step(ALL, [0, 1, 2], 0), "SEQ has 1 to 18 digits"),
    "a huge number": (step(ALL, [0, 1, 2], 2**63), "SEQ has 1 to 18 digits"),
    "no such env": (step([0, 1, 3], [0, 1, 2]), "there is no such env: 'ENV=3'"),
    "an env twice": (step([0, 1, 1], [0, 1, 2]), "an env asked twice: 'ENV=1'"),
    "nan": (step([0, 2, 1], [0, np.nan, 0]), "not a finite number: 'ENV=2'"),
    "no choice": (step(ALL, [0, 1, 3]), "not one of 0 to 2: 'ENV=2'"),
    "half a choice": (step(ALL, [0.5, 1, 2]), "not one of 0 to 2: 'ENV=0'"),
}
FROM_THE_GAME: dict[str, tuple[list[str], str, str]] = {
    "nan": (["NaN", "0"], "0", "the game gave NaN as an observation: ENV=1"),
    "beyond float32": (["0", "1e39"], "0", "the game gave 1e+39 as an observation: ENV=1"),
    "reward": (["0", "0"], "Infinity", "the game gave Infinity as a reward: ENV=0"),
    "a number too few": (["0"], "0", "the game gave 1 numbers as an observation, not 2: ENV=1"),
}


@needs_node
def test_the_pages_side_names_what_is_wrong_and_does_nothing_of_it(tmp_path: Path) -> None:
    assert NODE is not None
    said: list[Any] = [[RIGHT.hex(), ["1", "0.1"], "0.1"]]
    said += [[message.hex(), ["1", "0.1"], "0.1"] for message, _ in TO_THE_PAGE.values()]
    said += [[RIGHT.hex(), seen, reward] for seen, reward, _ in FROM_THE_GAME.values()]
    script = tmp_path / "page.mjs"
    script.write_text(SCRIPT.format(module=WEB / "ue_rl.js", messages=json.dumps(said)))
    done = subprocess.run([NODE, script], capture_output=True, text=True, check=True, timeout=60)
    right, *others = json.loads(done.stdout)
    assert right == [3, answer(ALL, [[0, 0.1], [1, 0.1], [2, 0.1]], [0.1] * 3, number=2**55 + 1).hex()]
    expected = [words for _, words in TO_THE_PAGE.values()] + [words for _, _, words in FROM_THE_GAME.values()]
    for (acted, told), words in zip(others, expected, strict=True):
        assert words in told
        assert told.startswith("SessionError")
        assert acted == (3 if words.startswith("the game") else 0)


@contextmanager
def game(name: str, *form: str) -> Iterator[BaseTransport]:
    """One of games.mjs, as a page that dials."""
    port = free_port()
    with node(GAMES, name, f"ws://127.0.0.1:{port}", *form):
        with open_transport(f"page://127.0.0.1:{port}", wait=20.0) as transport:
            yield transport


STEPS = 60


def episodes(transport: Any) -> list[Any]:
    """All of STEPS steps in which episodes end, and begin as they were asked ahead or are asked."""
    rng = np.random.default_rng(3)
    transport.reset(seeds=[1, 2, 3])
    states = transport.receive()
    transport.ask_ahead([0, 1])
    seen = []
    for _ in range(STEPS):
        seen.append([*parts(states), dict(states.infos)])
        legal = states.masks.copy()
        legal[states.dones == 1] = 1
        actions = np.where(legal.all(axis=1), rng.integers(0, 2, 3), legal[:, 1]).astype(np.float32)
        over = np.flatnonzero(states.dones).tolist()
        if over:
            transport.reset(over)
            states = transport.receive()
            seen.append([*parts(states), dict(states.infos)])
        transport.send_actions(actions[:, np.newaxis])
        states = transport.receive()
    return seen


@needs_node
@pytest.mark.parametrize("name", [pytest.param("everything", marks=pytest.mark.exhaustive), "quiet"])
def test_masks_infos_and_episodes_asked_ahead_are_those_of_text(name: str) -> None:
    """`everything` has an INFO in each step, whose answers are text; `quiet` in a few."""
    with game(name, "text") as transport:
        assert "BINARY" not in transport.spec.features
        in_text = episodes(transport)
    with game(name) as transport:
        assert transport.describe()["wiring"] == "shared channel, binary steps"
        assert episodes(transport) == in_text
    assert sum(not infos for *_, infos in in_text) > 20 or name == "everything"


@needs_node
def test_agents_stay_in_text() -> None:
    with game("agents") as transport:
        assert "BINARY" not in transport.spec.features
        assert transport.describe()["wiring"] == "shared channel"


@needs_node
def test_a_trace_of_it_plays_where_steps_are_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.trace"
    with game("quiet") as transport:
        recorded = RecordingTransport(transport, path)
        recorded.connect()
        episodes(recorded)
        recorded.close()
    for form in ((), ("text",)):
        with game("quiet", *form) as transport:
            assert replay_trainer(Trace(path), transport).env_steps == 3 * STEPS
