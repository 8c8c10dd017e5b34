"""Replays: what was asked, tick by tick, plays again to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from click.testing import CliRunner

from tests.plugins.sessions.realtime.games import OneByOne
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.cli import cli
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.sessions.realtime import Session, SessionPool, ToolCall
from ue_rl.plugins.sessions.realtime.player import ReplayBridge, ReplayPlayer
from ue_rl.plugins.sessions.realtime.replay import Replay
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
    assert replay.whole
    assert replay.header["game"] == "CartPole-v1"
    with ReplayPlayer(replay) as player:
        assert player.life.phase.value == "LOADING_REPLAY"
        again = list(player.play())
        assert player.life.phase.value == "REPLAY_ENDED"
        assert len(list(player.play())) == len(again), "it can be played once more"
    assert player.life.phase.value == "IDLE"
    assert len(replay.episodes) > 2
    wanted = {each.observation.tobytes() for each in seen}
    assert wanted <= {each.observation.tobytes() for each in again}


@pytest.mark.usefixtures("msgpack_of_ray")
def test_nothing_is_loaded_beside_ray(tmp_path: Path) -> None:
    assert Replay.load(recorded(tmp_path, "CartPole-v1", cart_pole)[0]).whole


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


def test_what_messagepack_cannot_carry_is_recorded_too_and_ends_nobody(tmp_path: Path) -> None:
    odd = [{"start": 3, "name": "\ud800", "size": 2**70}, {"start": 4, "list": [2**64]}]

    def play(session: Session) -> list[Any]:
        seen = [session.reset(seed=1, options=each) for each in odd]
        return [*seen, session.advance(1, [ToolCall("add", {"amount": 10**30})])]

    file, seen = recorded(tmp_path, SUMS, play)
    assert seen[0].observation[1] == 3
    assert [each.options for each in Replay.load(file).episodes][-2:] == odd
    with ReplayPlayer(Replay.load(file)) as player:
        assert [*player.play()][-1].observation.tobytes() == seen[-1].observation.tobytes()


def test_a_file_that_was_cut_off_plays_to_its_last_whole_tick(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, SUMS, lambda session: [session.advance(2, [[1.0]]) for _ in range(10)])
    data = file.read_bytes()
    reader = msgpack.Unpacker()
    reader.feed(data)
    ends = []
    for _ in reader:
        ends.append(reader.tell())
    assert ends[-1] == len(data)
    ticks = []
    for length in range(ends[1], len(data)):
        file.write_bytes(data[:length])
        replay = Replay.load(file)
        assert replay.whole == (length in ends)
        ticks.append(replay.episodes[0].ticks)
    assert ticks == sorted(ticks)
    assert set(ticks) == {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}
    file.write_bytes(data[:-3])
    with ReplayPlayer(Replay.load(file)) as player:
        *_, last = player.play()
    assert last.observation.tolist()[1:] == [18, 9, 0]
    done = CliRunner().invoke(cli, ["sessions", "replay", str(file)])
    assert (done.exit_code, "18 ticks, return 9" in done.output, "cut off" in done.output) == (0, True, True), done


def test_what_is_no_replay_or_damaged_or_plays_otherwise_is_named(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, SUMS, lambda session: [session.advance(2, [[1.0]]) for _ in range(10)])
    data = file.read_bytes()
    bad = tmp_path / "bad.replay"
    refused = 0
    for at in range(0, len(data), 7):
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])
        try:
            Replay.load(bad)
        except ReplayInvalid:
            refused += 1
            continue
        assert not Replay.load(bad).whole, at  # its last object seems to be longer than the file
    assert refused > len(data) // 14
    for other in (b"", b"\xc1", b"hello", msgpack.packb({"format": "ue_rl replay", "version": 2}), b"\xdd" * 100):
        bad.write_bytes(other)
        with pytest.raises(ReplayInvalid):
            Replay.load(bad)
    replay = Replay.load(file)
    replay.episodes[0].sums[4] += 1
    with (
        ReplayPlayer(replay) as player,
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


def test_a_full_disk_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def play(session: Session) -> list[Any]:
        assert session.recorder is not None
        monkeypatch.setattr(session.recorder, "_file", _Full())
        return [session.advance(2).tick, session.advance(2).tick]

    class _Full:
        closed = False
        write = flush = full

        def close(self) -> None:
            self.closed = True

    assert recorded(tmp_path, OneByOne, play)[1] == [2, 4]
    assert caplog.text.count("is not recorded any further") == 1


def test_a_film_of_a_replay(tmp_path: Path) -> None:
    file, _ = recorded(tmp_path, "CartPole-v1", lambda session: cart_pole(session, 6))
    film = tmp_path / "film.gif"
    done = CliRunner().invoke(cli, ["sessions", "replay", str(file), "--gif", str(film)])
    assert done.exit_code == 0, done.output
    assert film.read_bytes()[:3] == b"GIF"
