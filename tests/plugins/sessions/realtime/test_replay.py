"""Replays: what was asked, tick by tick, plays again to the bit."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import msgpack
import numpy as np
import pytest
from click.testing import CliRunner

from tests.plugins.sessions.realtime.games import OneByOne
from tests.support.full import no_file_beyond
from tests.support.steps import advance, begin
from tests.support.traces import overflow
from tests.support.waiting import eventually
from ue_rl.cli import cli
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.sessions.realtime import Session, SessionPool, ToolCall
from ue_rl.plugins.sessions.realtime.player import ReplayBridge, ReplayPlayer
from ue_rl.plugins.sessions.realtime.replay import SIDE, Replay
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.traces.file import MessageKind
from ue_rl.protocol.traces.reading import Trace
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.system.errors import ReplayInvalid

SUMS, ORDERS = "tests.plugins.sessions.realtime.games:Sums", "tests.plugins.sessions.realtime.games:Orders"


def recorded(folder: Path, game: Any, play: Any, **options: Any) -> tuple[Path, list[Any]]:
    """The file of one session, and what `play` gave."""
    if game == "CartPole-v1":
        pytest.importorskip("gymnasium")
    with SessionPool(game, max_sessions=2, workers=1, record=folder, **options) as pool:
        session = pool.create(session_id="it/s")
        found = play(session)
    return folder / "it_s.replay", found


def cart_pole(session: Session, advances: int = 60) -> list[Any]:
    random = np.random.default_rng(0)
    seen = [session.reset(seed=7)]
    for n in range(advances):
        seen.append(session.advance(1 + n % 3, [[float(random.integers(2))]], reset=seen[-1].done))
    return seen


def test_an_episode_plays_again_to_the_bit(tmp_path: Path) -> None:
    file, seen = recorded(tmp_path, "CartPole-v1", cart_pole)
    replay = Replay.load(file)
    assert replay.end == ""
    assert replay.header["game"] == "CartPole-v1"
    with ReplayPlayer(replay) as player:
        assert player.life.phase.value == "LOADING_REPLAY"
        again = list(player.play())
        assert player.life.phase.value == "REPLAY_ENDED"
        assert len(list(player.play())) == len(again), "it can be played once more"
    assert player.life.phase.value == "IDLE"
    assert replay.episodes > 2
    wanted = {each.observation.tobytes() for each in seen}
    assert wanted <= {each.observation.tobytes() for each in again}


def test_tools_several_orders_and_real_time_are_recorded(tmp_path: Path) -> None:
    def play(session: Session) -> list[Any]:
        session.advance(0, [ToolCall("add", {"amount": 2.5}), [1.0]])
        session.advance(3, [[2.0], ToolCall("add", {"amount": 1}), [3.0]])
        session.advance(4)
        return [session.advance(0, [ToolCall("add", {"amount": 5})])]

    file, (last,) = recorded(tmp_path, ORDERS, play)
    with ReplayPlayer(Replay.load(file)) as player:
        *_, end = player.play()
        assert (end.tick, end.observation[2]) == (7, 9.5)
        assert player.session.advance(0, [ToolCall("add", {"amount": 0})]).info["tools"][0]["result"] == {"sum": 14.5}
    assert last.info["tools"][0]["result"] == {"sum": 14.5}

    def in_real_time(session: Session) -> list[Any]:
        for n in range(5):
            session.act([float(n)])
            session.advance(3)
        eventually(lambda: session.latest.tick > 20)
        return [session.advance(1)]

    file, (last,) = recorded(tmp_path / "clock", ORDERS, in_real_time, tick_rate=200, kwargs={"length": 10**9})
    with ReplayPlayer(Replay.load(file)) as player:
        seen = {each.tick: each.observation.tobytes() for each in player.play()}
    assert seen[last.tick] == last.observation.tobytes()


def test_odd_options_and_arguments_are_recorded_too_and_end_nobody(tmp_path: Path) -> None:
    odd = [{"start": 3, "name": "\ud800", "size": 2**70}, {"start": 4, "list": [2**64]}]

    def play(session: Session) -> list[Any]:
        seen = [session.reset(seed=1, options=each) for each in odd]
        return [*seen, session.advance(1, [ToolCall("add", {"amount": 10**30})])]

    file, seen = recorded(tmp_path, SUMS, play)
    assert seen[0].observation[1] == 3
    assert [turn.options for turn in Replay.load(file) if turn.begins][-2:] == odd
    with ReplayPlayer(Replay.load(file)) as player:
        assert [*player.play()][-1].observation.tobytes() == seen[-1].observation.tobytes()


def ten_frames(session: Session) -> list[Any]:
    """Ten advances, each a frame of the file; an episode's first look is in the first."""
    assert session.recorder is not None
    for _ in range(10):
        session.advance(2, [[1.0]])
        session.recorder.trace.filled(perf_counter())
    return []


def test_a_file_that_was_cut_off_or_damaged_plays_to_its_last_whole_frame(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, SUMS, ten_frames)
    data, whole = file.read_bytes(), list(Replay.load(file))
    first = data.index(b"UTRm")
    ticks = set()
    for at in [*range(first, len(data), 5), len(data) - 1]:
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :]):
            file.write_bytes(broken)
            replay = Replay.load(file)
            turns = list(replay)
            assert replay.end
            assert turns == whole[: len(turns)]
            ticks.add(sum(turn.ticks for turn in turns))
    assert ticks == {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20}
    file.write_bytes(data[:-40])
    with ReplayPlayer(Replay.load(file)) as player:
        *_, last = player.play()
    assert last.observation.tolist()[1:] == [18, 9, 0]
    done = CliRunner().invoke(cli, ["sessions", "replay", str(file)])
    assert (done.exit_code, "18 ticks, return 9" in done.output, "cut off" in done.output) == (0, True, True), done
    for at in range(0, first, 7):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])
        with pytest.raises(ReplayInvalid, match="not a trace"):
            Replay.load(file)


def test_what_is_no_replay_or_plays_otherwise_is_named(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, SUMS, ten_frames)
    bad = tmp_path / "bad.replay"
    for other in (b"", b"\xc1", b"hello", b"\xdd" * 100):
        bad.write_bytes(other)
        with pytest.raises(ReplayInvalid, match="not a trace"):
            Replay.load(bad)
    with pytest.raises(ReplayInvalid, match="cannot be read"):
        Replay.load(tmp_path / "nowhere.replay")
    bad.write_bytes(msgpack.packb({"format": "ue_rl replay", "version": 1, "game": "CartPole-v1"}))
    with pytest.raises(ReplayInvalid, match=r"of an earlier form.*the ue_rl that has recorded it"):
        Replay.load(bad)
    TraceWriter(bad, EnvSpec(2, 1), "trainer").close()
    with pytest.raises(ReplayInvalid, match="recorded elsewhere"):
        Replay.load(bad)
    overflow(bad, SIDE)
    with pytest.raises(ReplayInvalid, match="beginning of this replay was dropped"):
        Replay.load(bad)
    shown = CliRunner().invoke(cli, ["trace", "show", str(file)]).output
    assert "1 episode, 10 action, 10 ticks" in shown.replace("\n", " ")
    assert SUMS in shown
    replay = Replay.load(file)
    with SessionPool(SUMS, max_sessions=1, workers=1) as pool:
        writer = TraceWriter(bad, pool.spec, SIDE, about=Trace(file).header["about"])
    for message in Trace(file):
        more = message.kind is MessageKind.TICKS and message.facts["tick"] == 4
        writer.add(message.kind, {**message.facts, "sum": message.facts.get("sum", 0) + more})
    writer.close()
    with (
        ReplayPlayer(Replay.load(bad)) as player,
        pytest.raises(ReplayInvalid, match="another observation at tick 4 of episode 1"),
    ):
        list(player.play())
    pytest.importorskip("gymnasium")
    replay.header["game"] = "CartPole-v1"
    with pytest.raises(ReplayInvalid, match="not the one that was recorded"):
        ReplayPlayer(replay)


def test_a_replay_is_an_engine_of_one_env(tmp_path: Path) -> None:
    def play(session: Session) -> list[Any]:
        return [session.advance(5, [[2.0]]), session.advance(5, [[1.0]], reset=True)]

    file, _ = recorded(tmp_path, SUMS, play, kwargs={"length": 5})
    with ReplayPlayer(Replay.load(file)) as player:
        transport = MemoryTransport(ReplayBridge(player))
        transport.connect()
        for total in (2, 1, 2):
            begin(transport)
            for tick in range(1, 6):
                got = advance(transport, 0)
                assert got.obs[0, 1:3].tolist() == [tick, total]
            assert got.dones[0]


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def play(session: Session) -> list[Any]:
        assert session.recorder is not None
        with no_file_beyond((tmp_path / "it_s.replay").stat().st_size):
            session.recorder.trace.filled(0.0)  # the next message is due
            return [session.advance(2).tick, session.advance(2).tick]

    assert recorded(tmp_path, OneByOne, play)[1] == [2, 4]
    assert caplog.text.count("is not recorded any further") == 1


def test_a_film_of_a_replay(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, "CartPole-v1", lambda session: cart_pole(session, 6))
    film = tmp_path / "film.gif"
    done = CliRunner().invoke(cli, ["sessions", "replay", str(file), "--gif", str(film)])
    assert done.exit_code == 0, done.output
    assert film.read_bytes()[:3] == b"GIF"
