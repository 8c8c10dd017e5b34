"""A trace holds every message, plays to the bit, names what departs, and is read as if a stranger had written it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

from tests.harness.exactness import Drift, bridge, differ, new
from tests.support.full import no_file_beyond
from tests.support.waiting import eventually
from ue_rl.bridges import VectorAgentsBridge, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.cli import cli
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.recording import RecordingTransport, ReplayedGame, Trace, TraceWriter, record_engine, replay_trainer
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.protocol.traces.file import AHEAD, MessageKind, frame
from ue_rl.system.errors import CommandFailed, ReplayInvalid, UeRlError

SPEC = EnvSpec(2, 1, num_envs=3, features=frozenset({"SEED", "TRUNC", "INFO", "OPTIONS"}))


class Counter(VectorBridge):
    """Observations [steps of the episode, the last action]; episodes of 5, 6 and 7 steps."""

    def __init__(self, wrong_at: int = -1, spec: EnvSpec = SPEC) -> None:
        super().__init__(spec)
        self.wrong_at, self.steps, self.total = wrong_at, np.zeros(spec.num_envs), 0

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.steps[env_ids] = 0
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.total += 1
        self.steps[env_ids] += 1
        out = self.outbox
        out.obs[env_ids, 0], out.obs[env_ids, 1] = self.steps[env_ids], actions[env_ids, 0]
        out.rewards[env_ids] = 0.5
        out.dones[env_ids] = self.steps[env_ids] >= 5 + env_ids
        if self.total == self.wrong_at:
            out.obs[1, 1] += 0.25
        self.write_info(0, {"total": self.total})


def begun(transport: Any, seed: int = 0) -> tuple[UnrealVecEnv, Callable[[], Any]]:
    """An env that was reset, and what draws its actions."""
    env = UnrealVecEnv(transport)
    env.seed(seed)
    env.reset()
    env.action_space.seed(seed)
    return env, lambda: np.stack([env.action_space.sample() for _ in range(env.num_envs)])


def steps(transport: Any, count: int = 30, seed: int = 0) -> None:
    """Random actions, with the resets of a VecEnv."""
    env, draw = begun(transport, seed)
    for _ in range(count):
        env.step(draw())
    env.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.trace"


@pytest.fixture
def recorded(path: Path) -> Path:
    steps(RecordingTransport(MemoryTransport(Counter()), path))
    return path


def test_every_message_is_there_in_its_order(recorded: Path) -> None:
    trace = Trace(recorded)
    messages = list(trace)
    assert (trace.end, trace.begins, trace.header["side"]) == ("", True, "trainer")
    assert [m.kind for m in messages][:5] == [
        MessageKind.SESSION, MessageKind.ASK, MessageKind.PART, MessageKind.STEP, MessageKind.PART
    ]  # fmt: skip
    assert messages[0].at <= messages[-1].at
    first = next(m for m in messages if m.kind is MessageKind.ASK)
    assert first.facts == {"resets": [0, 1, 2], "seeds": [0, 1, 2]}
    answers = [m for m in messages if m.kind is MessageKind.PART and m.envs is None]
    assert len(answers) == 30
    assert answers[3].arrays["obs"][:, 0].tolist() == [4, 4, 4]
    assert answers[4].arrays["dones"].tolist() == [1, 0, 0]
    assert answers[3].facts["infos"] == {"0": {"total": 4}}


def test_calls_and_errors_are_recorded(path: Path) -> None:
    with run_in_thread(bridge()) as engine:
        transport = RecordingTransport(open_transport(engine.url), path)
        transport.connect()
        answer = transport.call("GET=pull")
        with pytest.raises(CommandFailed):
            transport.call("GET=push")
        with pytest.raises(UeRlError):
            transport.reset([7])
        transport.close()
    found = [(m.kind, m.facts) for m in Trace(path)][1:]
    assert found[:3] == [
        (MessageKind.CALL, {"line": "GET=pull"}),
        (MessageKind.REPLY, {"line": answer}),
        (MessageKind.CALL, {"line": "GET=push"}),
    ]
    assert found[3][1]["line"].startswith("REFUSED=")
    assert (found[4][1]["during"], found[4][1]["error"]) == ("reset", "ConfigurationError")


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("ppo", "engine"),
        ("masked", "trainer"),
        ("her", "engine"),
        pytest.param("ppo", "trainer", marks=pytest.mark.exhaustive),
        pytest.param("masked", "engine", marks=pytest.mark.exhaustive),
        pytest.param("her", "trainer", marks=pytest.mark.exhaustive),
    ],
)
def test_a_run_against_its_recording_has_the_same_weights(name: str, side: str, path: Path) -> None:
    kind = {"ppo": "box", "masked": "masked", "her": "goals"}[name]

    def learn(url: str, record: bool) -> Any:
        transport: Any = open_transport(url)
        if record:
            transport = RecordingTransport(transport, path)
        env = UnrealVecEnv(transport)
        model = new(name, env).learn(192)
        env.close()
        return model

    game = bridge(kind)
    writer = record_engine(game, path) if side == "engine" else None
    with run_in_thread(game) as engine:
        first = learn(engine.url, side == "trainer")
    if writer is not None:
        writer.close()
    departures: list[ReplayInvalid] = []
    host = run_shm_in_thread if name == "ppo" else run_in_thread
    with host(ReplayedGame(Trace(path), departures.append)) as engine:
        assert differ(first, learn(engine.url, False)) == []
        assert differ(first, learn(engine.url, False)) == []  # and again, from the beginning
    assert departures == []


def test_the_first_action_that_departs_is_named(recorded: Path) -> None:
    departures: list[ReplayInvalid] = []
    with run_in_thread(ReplayedGame(Trace(recorded), departures.append)) as engine:
        with pytest.raises(UeRlError, match="departs"):
            steps(open_transport(engine.url), seed=1)
        first = departures[0]
        assert (first.env_id, first.field, first.expected, first.got) == (0, "SEED", "0", "1")
        env, draw = begun(open_transport(engine.url))
        for _ in range(3):
            env.step(draw())
        actions = draw()
        was = float(actions[2, 0])
        actions[2] = 0.5
        with pytest.raises(UeRlError, match="at step 3"):
            env.step(actions)
    last = departures[-1]
    assert (last.env_id, last.field, last.expected, last.got) == (2, "ACT[0]", f"{was:.9g}", "0.5")


def test_an_engine_that_answers_as_before_passes_and_another_is_named(recorded: Path) -> None:
    for host in (run_in_thread, run_shm_in_thread):
        with host(Counter()) as engine:
            transport = open_transport(engine.url)
            assert replay_trainer(Trace(recorded), transport)[1:] == (90, 18)
            transport.close()
    with pytest.raises(ReplayInvalid, match="at step 9") as caught:
        replay_trainer(Trace(recorded), MemoryTransport(Counter(wrong_at=9)))
    error = caught.value
    assert (error.env_id, error.field) == (1, "OBS[1]")
    assert float(str(error.got)) == pytest.approx(float(str(error.expected)) + 0.25)
    with pytest.raises(ReplayInvalid, match="handshake") as caught:
        replay_trainer(Trace(recorded), MemoryTransport(Counter(spec=EnvSpec(2, 1, num_envs=4))))
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("num_envs", "3", "4")


def test_of_several_sessions_the_first_is_played(path: Path) -> None:
    bridge = Counter()
    with contextlib.closing(record_engine(bridge, path)), run_in_thread(bridge) as engine:
        steps(open_transport(engine.url), 4)
        steps(open_transport(engine.url), 6, seed=1)
    assert [message.kind for message in Trace(path)].count(MessageKind.SESSION) == 2
    assert replay_trainer(Trace(path), MemoryTransport(Counter())).env_steps == 4 * 3


class Team(VectorAgentsBridge):
    """Two agents; the second leaves after three steps and comes back after five."""

    def __init__(self) -> None:
        super().__init__([AgentGroup("a", 2, EnvSpec(1, 1))], num_envs=2)
        self.steps = np.zeros(2, int)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.steps[env_ids] = 0
        self.states.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.steps[env_ids] += 1
        self.states.obs[env_ids, :, 0] = self.steps[env_ids, None]
        self.states.dones[env_ids, 1] = self.steps[env_ids] == 3
        self.states.present[env_ids[self.steps[env_ids] == 5], 1] = 1


def test_agents_that_come_and_go(path: Path) -> None:
    transport: Any = RecordingTransport(MemoryTransport(Team()), path)
    transport.connect()
    transport.reset()
    transport.receive()
    for _ in range(7):
        transport.send_actions(np.ones((4, 1), np.float32))
        transport.receive()
    transport.close()
    assert replay_trainer(Trace(path), MemoryTransport(Team())).env_steps == 14
    assert replay_trainer(Trace(path), MemoryTransport(ReplayedGame(Trace(path)))).env_steps == 14


def test_a_cut_or_damaged_trace_plays_to_its_last_whole_message(path: Path) -> None:
    writer = TraceWriter(path, SPEC, "trainer")
    for number in range(40):
        writer.add(MessageKind.CALL, {"line": f"GET={number}"})
        if number % 5 == 4:
            writer.filled(perf_counter())
    writer.close()
    data, whole = path.read_bytes(), [m.facts for m in Trace(path)]
    seen = set()
    for at in range(600, len(data), 7):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            path.write_bytes(broken)
            trace = Trace(path)
            found = [m.facts for m in trace]
            assert found == whole[: len(found)]
            assert len(found) % 5 == 0
            assert trace.end
            seen.add(len(found))
    assert len(seen) >= 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a trainer")
def test_what_a_killed_trainer_has_recorded_is_played_to_the_bit(path: Path) -> None:
    trainer = os.fork()
    if trainer == 0:
        try:
            env, draw = begun(RecordingTransport(MemoryTransport(Counter()), path))
            while True:
                env.step(draw())
                sleep(0.001)
        finally:
            os._exit(1)
    try:
        eventually(lambda: path.exists() and path.stat().st_size > 10_000, seconds=120)
    finally:
        os.kill(trainer, signal.SIGKILL)
        _, status = os.waitpid(trainer, 0)
    assert os.WIFSIGNALED(status)
    trace = Trace(path)
    assert replay_trainer(trace, MemoryTransport(Counter())).env_steps > 100
    assert "cut off" in trace.end


def test_many_large_answers_at_once_are_frames_of_their_own(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Answers with infos, faster than a frame falls due: together they are more than a frame may hold."""
    writer = TraceWriter(path, EnvSpec(1_000_000, 1), "engine")
    answer = (np.zeros((1, 1_000_000), np.float32), np.zeros(1, np.float32), *np.zeros((2, 1), np.uint8))
    for _ in range(20):
        writer.part(None, {}, *answer)
    writer.close()
    assert len(list(Trace(path))) == 20
    assert caplog.text == ""


def test_a_trace_of_no_engine_holds_words_alone(path: Path) -> None:
    writer = TraceWriter(path, None, "game", about={"seed": 3})
    writer.add(MessageKind.EPISODE, {"seed": 3})
    writer.add(MessageKind.TICKS, {"tick": 1, "sum": "\ud800"})
    writer.close()
    trace = Trace(path)
    assert trace.header["about"] == {"seed": 3}
    assert [(m.kind.name, m.facts) for m in trace] == [
        ("EPISODE", {"seed": 3}),
        ("TICKS", {"tick": 1, "sum": "\ud800"}),
    ]
    shown = CliRunner().invoke(cli, ["trace", "show", str(path)], standalone_mode=False).output
    assert "-> " in shown
    assert "1 episode, 1 ticks" in shown
    for played in (lambda: ReplayedGame(trace), lambda: replay_trainer(trace, MemoryTransport(Counter()))):
        with pytest.raises(ReplayInvalid, match="recorded elsewhere"):
            played()
    with pytest.raises(ReplayInvalid, match="of no engine"):
        _ = trace.spec
    writer = TraceWriter(path, None, "game")
    writer.pieces += [struct.pack("<Bd", MessageKind.STEP, 0.0), bytes(4)]
    writer.close()
    with pytest.raises(ReplayInvalid, match="holds no messages"):
        list(Trace(path))


def hostile(kind: str, good: bytes) -> bytes:
    """A file that a stranger has written."""
    text = json.loads(zstandard.decompress(good[16 : 16 + struct.unpack_from("<I", good, 4)[0]]))
    bomb = zstandard.compress(bytes(1 << 28))

    def header(**other: Any) -> bytes:
        data = json.dumps({**text, **other}).encode()
        return frame(b"UTR1", zstandard.compress(data), len(data))

    odd = struct.pack("<BdIII", 3, 0.0, 1 << 31, 1, 1)
    many = struct.pack("<BdIIii", 4, 0.0, 0, 2, 0, 99)
    return {
        "bomb": header() + frame(b"UTRm", bomb, 1 << 20),
        "bomb that says so": frame(b"UTR1", bomb, 1 << 26),
        "no messages": header() + frame(b"UTRm", zstandard.compress(odd), len(odd)),
        "an env too many": header() + frame(b"UTRm", zstandard.compress(many), len(many)),
        "no header": b"PK\x03\x04" + bytes(100),
        "a pickle": b"\x80\x04cos\nsystem\n",
        "version": header(version=9),
        "engine": header(handshake="CONFIG:OBS=99999999999;ACT=1"),
        "not zstd": header() + frame(b"UTRm", b"nonsense", 100),
        "deep": frame(b"UTR1", zstandard.compress(b"[" * 100_000), 100_000),
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("bomb", "unpacks to more"), ("bomb that says so", "unpacks to more"), ("no messages", "holds no messages"),
        ("an env too many", "holds no messages"), ("no header", "not a trace"), ("a pickle", "not a trace"),
        ("version", "another version"), ("engine", "cannot be"), ("not zstd", "cannot be unpacked"),
        ("deep", "not a trace"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_by_name(kind: str, said: str, recorded: Path) -> None:
    recorded.write_bytes(hostile(kind, recorded.read_bytes()))
    with pytest.raises(ReplayInvalid, match=said):
        list(Trace(recorded))


def test_a_trace_keeps_to_its_size_and_says_what_went(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = EnvSpec(50, 1, num_envs=40)
    rng = np.random.default_rng(0)
    writer = TraceWriter(path, spec, "engine", 1_000_000)
    for _ in range(400):
        writer.ask(range(40), (), {}, rng.normal(size=(40, 1)).astype(np.float32))
        obs = rng.normal(size=(40, 50)).astype(np.float32)
        writer.part(None, {}, obs, np.zeros(40, np.float32), *np.zeros((2, 40), np.uint8))
        writer.filled(0.0)
    writer.close()
    older = path.with_name("a.trace.1")
    assert path.stat().st_size + older.stat().st_size < 1_050_000
    trace = Trace(path)
    messages = list(trace)
    assert not trace.begins
    assert 100 < len(messages) < 400
    assert "oldest messages are dropped" in caplog.text
    assert caplog.text.count("dropped") == 1
    with pytest.raises(ReplayInvalid, match="beginning"):
        ReplayedGame(trace)
    # a number is 4 bytes, and what is beside the numbers is little
    raw = sum(sum(a.nbytes for a in m.arrays.values()) + 60 for m in messages)
    assert raw / sum(sum(a.size for a in m.arrays.values()) for m in messages) < 5


def test_a_full_disk_ends_the_trace_and_not_the_session(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    transport = RecordingTransport(MemoryTransport(Counter()), path)
    transport.connect()
    with no_file_beyond(path.stat().st_size):
        transport.writer.filled(0.0)
        steps(transport)
    assert "not recorded any further" in caplog.text


def test_the_commands(recorded: Path, tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(cli, list(words), standalone_mode=False)

    shown = run("trace", "show", str(recorded), "--messages", "3").output
    assert "3 envs, 2 -> 1 numbers, MULTI" in shown
    assert "seeds [0, 1, 2], resets [0, 1, 2]" in shown
    with run_in_thread(Counter()) as engine:
        assert "90 env-steps and 18 resets, equal to the bit" in run("replay", str(recorded), engine.url).output
    with run_in_thread(Counter(wrong_at=9)) as engine:
        found = run("replay", str(recorded), engine.url)
        assert isinstance(found.exception, ReplayInvalid)
        assert "env 1, field OBS[1]" in str(found.exception)
    for words in (["--port", "7780", "--listen", "shm://x"], ["--port", "7780", "127.0.0.1:7779"]):
        refused = run("replay", str(recorded), *words)
        assert "leave one out" in str(refused.exception) or "give one of them" in str(refused.exception)


def test_a_trace_answers_at_the_port_that_is_given(recorded: Path) -> None:
    with socket.socket() as other, socket.socket() as usual:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with contextlib.suppress(OSError):  # somebody else has it, which does as well
            usual.bind(("127.0.0.1", 7777))
            usual.listen()
        port = other.getsockname()[1]
        for words, place in ((["--port", str(port)], f"127.0.0.1:{port}"), ([], "127.0.0.1:7777")):
            taken = CliRunner().invoke(cli, ["replay", str(recorded), *words])
            assert f"cannot listen on {place}" in str(taken.exception)


@pytest.mark.parametrize("kind", ["box", "discrete", "dict"])
def test_what_a_trainer_sets_is_asked_again(kind: str, path: Path) -> None:
    """Parameters that are drawn for each reset, beside the step in which others act."""
    draw: Callable[[int], dict[str, float]] = lambda env: {"pull": 0.5 + env / 10}  # noqa: E731
    transport = RecordingTransport(MemoryTransport(bridge(kind)), path)
    transport.draw_parameters = draw
    steps(transport, 40, seed=3)
    asked = [m.facts["parameters"] for m in Trace(path) if m.kind is MessageKind.ASK]
    assert asked[0] == [{"pull": 0.5}, {"pull": 0.6}, {"pull": 0.7}]
    assert replay_trainer(Trace(path), MemoryTransport(bridge(kind))).env_steps == 120
    assert Drift(kind).pull == 1.0


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
@pytest.mark.parametrize("side", ["trainer", "engine"])
def test_episodes_that_were_asked_ahead_are_recorded_and_replayed(side: str, host: Any, path: Path) -> None:
    """Also those that the trainer resets instead; the end of the last step is followed by no reset at all."""

    def play(transport: Any) -> list[list[float]]:
        env = UnrealVecEnv(transport)
        asked_ahead.append(env.transport.asks_ahead)
        env.seed(4)
        env.reset()
        rows = [env.step(np.full((3, 1), at / 16, np.float32))[0].ravel().tolist() for at in range(12)]
        env.seed(9)  # what was asked ahead is not what is asked now
        rows += [env.step(np.full((3, 1), at / 16, np.float32))[0].ravel().tolist() for at in range(12)]
        env.close()
        return rows

    asked_ahead: list[bool] = []
    game = Counter(spec=EnvSpec(2, 1, num_envs=3, features=SPEC.features | {"AUTORESET"}))
    writer = record_engine(game, path) if side == "engine" else None
    with host(game) as engine:
        inner = open_transport(engine.url)
        first = play(RecordingTransport(inner, path) if writer is None else inner)
    if writer is not None:
        writer.close()
        begun = [message.facts[AHEAD] for message in Trace(path) if message.facts.get(AHEAD)]
        assert begun
        assert all(each == [True] * len(each) for each in begun)
    departures: list[ReplayInvalid] = []
    with host(ReplayedGame(Trace(path), departures.append)) as engine:
        assert play(open_transport(engine.url)) == first
    assert (departures, asked_ahead[0]) == ([], True)
