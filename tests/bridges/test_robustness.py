"""What a bridge and its server do when the game, the trainer or the caller does something unusual."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

import ue_rl
from tests.bridges.policies import PlusOne
from tests.support.games import Steps, Sum
from tests.support.games import bridge as bridge_of
from tests.support.streams import ask, dial, greeted, hosting, is_closed_by_the_server, line, say, settle
from ue_rl.bridges import BridgeServer, GymnasiumBridge, Mode, SingleEnvBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.spec import ActionSpec, EnvSpec, EnvType
from ue_rl.system import errors

RESET_BOTH = "ACT=RESET;ENV=0||ACT=RESET;ENV=1\n"


class Game(Sum):
    """At 9 its own code fails; from 5 on the episode is truncated, said by `truncated` alone."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        if (actions[env_ids] == 9).any():
            raise ZeroDivisionError("a bug in the game")
        super().step_envs(actions, env_ids)
        self.outbox.truncated[env_ids] = self.outbox.obs[env_ids, 0] >= 5


bridge = partial(bridge_of, kind=Game)


class Stuck(Steps):
    """Its action never ends."""

    def is_action_running_for_env(self, env_id: int) -> bool:
        return True


# -- the game


@pytest.mark.parametrize("options", [{}, {"tick_rate": 500}])
@pytest.mark.parametrize("per_env", [False, True])
async def test_a_bug_in_the_game_ends_the_session_with_its_traceback_and_the_next_is_served(
    options: dict[str, Any], per_env: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(bridge(1), **options) as server:
        for _ in range(2):
            trainer = await greeted(server)
            own = await dial(server) if per_env else trainer
            assert (await ask(own, "ACT=RESET;ENV=0\n")).startswith("OBS=0;")
            with caplog.at_level(logging.ERROR, "ue_rl.bridges.tcp.server"):
                await say(own, "ACT=9;ENV=0\n")
                assert await is_closed_by_the_server(own)
            (record,) = caplog.records
            assert "a bug in the game" in record.getMessage()
            assert record.exc_info is not None
            assert record.exc_info[0] is ZeroDivisionError
            caplog.clear()


def test_truncated_alone_ends_an_episode() -> None:
    env = ue_rl.UnrealVecEnv(MemoryTransport(bridge(1, features=frozenset({"TRUNC"}))))
    env.reset()
    obs, _, dones, infos = env.step(np.array([[5]], np.float32))
    assert dones.tolist() == [True]
    assert obs.tolist() == [[0]]
    assert infos[0]["terminal_observation"].tolist() == [5]
    assert infos[0]["TimeLimit.truncated"]


# -- the trainer


@pytest.mark.parametrize("value", ["0.5", "2", "-1"])
async def test_an_action_that_is_no_choice_is_refused_not_rounded(value: str, caplog: pytest.LogCaptureFixture) -> None:
    hosted = bridge(2, action=ActionSpec.discrete(2))
    async with hosting(hosted) as server:
        trainer = await greeted(server)
        with caplog.at_level(logging.ERROR, "ue_rl.bridges.tcp.server"):
            await say(trainer, f"ACT=1;ENV=0||ACT={value};ENV=1\n")
            assert await is_closed_by_the_server(trainer)
        (record,) = caplog.records
        assert "broke the protocol" in record.getMessage()
        assert (
            "the action is not a choice of its space (env 1, field ACT); expected an integer from 0 to 1"
            in record.getMessage()
        )
        assert hosted.outbox.obs.tolist() == [[0], [0]]  # nothing was applied


async def test_a_trainer_that_never_reads_is_not_read_either() -> None:
    n = 512
    hosted = bridge(n)
    asks = "||".join(f"ACT=0.123456;ENV={i}" for i in range(n)) + "\n"
    async with hosting(hosted) as server:
        reader, writer = await dial(server)
        transport: Any = writer.transport
        transport.pause_reading()
        asked = 0
        while not server._members or not server._members[0].clogged:
            assert asked < 5000, "the server read on without end"
            writer.write(asks.encode())
            asked += 1
            while hosted.lockstep.ticks < asked and not (server._members and server._members[0].clogged):
                await asyncio.sleep(0)
        assert hosted.lockstep.ticks == asked
        writer.write(asks.encode())
        await settle()
        assert hosted.lockstep.ticks == asked  # the one more was not read
        asked += 1
        transport.resume_reading()  # it reads again: all was kept, and it goes on
        assert (await line((reader, writer))).startswith("CONFIG")
        for _ in range(asked):
            assert (await line((reader, writer))).count("OBS=") == n
        assert hosted.lockstep.ticks == asked
        writer.close()


async def test_only_so_many_trainers_wait() -> None:
    async with hosting(bridge(1)) as server:
        first = await greeted(server)
        await ask(first, "ACT=RESET;ENV=0\n")
        waiting = [await dial(server) for _ in range(16)]
        too_many = await dial(server)
        assert (await line(too_many)).startswith("BUSY")
        assert await too_many[0].read() == b""
        first[1].close()
        assert (await line(waiting[0])).startswith("BUSY")
        assert (await line(waiting[0])).startswith("CONFIG")
        for streams in waiting:
            streams[1].close()


# -- the caller


async def test_inference_ends_the_session_of_a_waiting_trainer_and_refuses_the_next() -> None:
    hosted = bridge_of(1, kind=Stuck)
    async with hosting(hosted) as server:
        trainer = await greeted(server)
        await ask(trainer, "ACT=RESET;ENV=0\n")
        await say(trainer, "ACT=1;ENV=0\n")  # never answered: the action runs on
        policy = PlusOne()
        hosted.set_inference_interface(policy)
        thread = threading.Thread(target=hosted.start_inference)  # from the game's own thread
        thread.start()
        thread.join()
        assert await is_closed_by_the_server(trainer)
        late = await dial(server)
        assert await is_closed_by_the_server(late)
        assert hosted.mode is Mode.INFERENCE
        ticks = hosted.lockstep.ticks
        await settle()
        assert (hosted.lockstep.ticks, policy.rows) == (ticks, [])  # the server leaves the ticks to the game
        hosted.start_training()
        again = await greeted(server)
        again[1].close()


async def test_start_training_again_does_not_forget_a_waiting_trainer() -> None:
    """The plugin's order is Connect, then StartTraining; a trainer may be faster than the second."""
    hosted = bridge(1)
    async with hosting(hosted, tick_rate=50) as server:
        trainer = await greeted(server)
        await say(trainer, "ACT=RESET;ENV=0\n")
        while not hosted.lockstep.busy:
            await asyncio.sleep(0)
        hosted.start_training()
        assert (await line(trainer)).startswith("OBS=0;")
        trainer[1].close()


async def test_new_sizes_end_the_session_and_a_bridge_has_one_server(caplog: pytest.LogCaptureFixture) -> None:
    hosted = bridge(2)
    async with hosting(hosted) as server:
        with pytest.raises(errors.ConfigurationError, match="hosted already"):
            await BridgeServer(hosted, port=0).start()
        trainer = await greeted(server)
        assert (await ask(trainer, RESET_BOTH)).count("OBS=") == 2
        hosted.initialize_environments(3)
        await say(trainer, RESET_BOTH)
        assert await is_closed_by_the_server(trainer)
        assert "or was given other sizes" in caplog.text
        following = await dial(server)
        assert "ENV_COUNT=3" in await line(following)
        following[1].close()
    async with hosting(hosted) as server:  # and another server may follow
        assert server.port
    with pytest.raises(errors.ConfigurationError, match="does not listen yet"):
        _ = BridgeServer(hosted, port=0).port


def test_before_it_has_sizes_a_bridge_says_so() -> None:
    fresh = Steps()
    fresh.disconnect()
    with pytest.raises(errors.ConfigurationError, match="no sizes yet"):
        fresh.start_training()
    with pytest.raises(errors.ConfigurationError, match="no sizes yet"):
        fresh.listen(port=0)
    fresh.update_rl(0.1)  # idle: nothing to do


def test_a_game_may_disconnect_from_within_its_callback() -> None:
    class Leaves(Sum):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            self.disconnect()

    hosted = bridge_of(1, kind=Leaves)
    server = hosted.listen(port=0)
    env: Any = ue_rl.connect(server.url, timeout=20)
    env.reset()
    with pytest.raises(errors.EngineDisconnected):
        env.step(np.zeros((1, 1), np.float32))
    env.close()
    server.close()
    assert hosted.mode is Mode.IDLE


def test_what_is_not_said_about_the_wiring_is_both() -> None:
    assert (
        Sum(EnvSpec(1, 1, num_envs=2)).build_handshake().endswith("VERSION=1;CHANNEL=ANY;FEATURES=AUTORESET,ERROR,SEQ")
    )
    assert Sum(EnvSpec(1, 1, EnvType.RLBASE)).build_handshake().endswith("VERSION=1")
    assert (
        Sum(EnvSpec(1, 1, num_envs=2, version=0)).build_handshake() == "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2"
    )


def test_reset_keywords_reach_an_override_that_takes_any() -> None:
    class One(SingleEnvBridge):
        seen: Any = None

        def handle_reset(self, **given: Any) -> None:
            self.seen = given

        def handle_response_actions(self, actions: Any) -> None:
            raise AssertionError("not used")

        def create_state_string(self) -> Any:
            return "1;"

        def calculate_reward(self) -> Any:
            return 0, False

    hosted = One(EnvSpec(1, 1, EnvType.SINGLE, features=frozenset({"SEED", "OPTIONS"})))
    hosted.start_training()
    hosted.inbox.command[0], hosted.inbox.seeds[0] = 2, 5
    hosted.inbox.options[0] = {"a": 1}
    hosted.update_rl(0)
    assert hosted.seen == {"seed": 5, "options": {"a": 1}}


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no 127.0.0.2 unless told so")
async def test_a_name_with_two_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2")]
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as others:
        taken: list[int] = []

        async def two(host: Any, port: int, **_: Any) -> Any:
            if port and not taken:  # what was free on the first address, another program has on the second
                others.enter_context(socket.create_server(("127.0.0.2", port)))
                taken.append(port)
            return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in infos]

        monkeypatch.setattr(loop, "getaddrinfo", two)  # as a name with an IPv4 and an IPv6 address
        async with BridgeServer(bridge(), host="localhost", port=0) as server:
            assert taken
            assert server.port not in taken
            assert server._server is not None
            assert sorted(sock.getsockname() for sock in server._server.sockets) == [
                ("127.0.0.1", server.port),
                ("127.0.0.2", server.port),
            ]


# -- GymnasiumBridge


class Told(gym.Env[Any, Any]):
    """Its info holds what JSON knows and what it does not."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        info = {
            "episode": {"r": np.float32(1.5), "l": np.int64(3), "path": [np.zeros(2)]},
            "nan": float("nan"), "object": object(), 1: True,
        }  # fmt: skip
        return np.zeros(1, np.float32), 0.0, False, False, info

    def close(self) -> None:
        Told.closed += 1


def test_gymnasium_bridge_makes_and_closes_envs_as_their_number_changes() -> None:
    hosted = GymnasiumBridge(Told, 2)
    hosted.initialize_environments(4)
    env = ue_rl.UnrealVecEnv(MemoryTransport(hosted))
    assert env.num_envs == 4
    env.reset()
    env.step(np.zeros(4, np.int64))
    Told.closed = 0
    hosted.initialize_environments(1)
    assert (len(hosted.envs), Told.closed) == (1, 3)
    with pytest.raises(errors.ConfigurationError, match="sizes are those of its env"):
        hosted.connect("127.0.0.1", 0, act_size=2, obs_size=1)
    with pytest.raises(errors.ConfigurationError, match="ENV_COUNT"):
        GymnasiumBridge(Told, 0)


def test_infos_are_sent_as_far_as_json_goes() -> None:
    env = ue_rl.UnrealVecEnv(MemoryTransport(GymnasiumBridge(Told, 1, send_info=True)))
    env.reset()
    with pytest.warns(UserWarning, match="'nan' is left out"):
        _, _, _, infos = env.step(np.zeros(1, np.int64))
    assert infos[0]["1"] is True
    np.testing.assert_equal(  # a word that SB3 uses itself
        infos[0]["engine"], {"episode": {"r": 1.5, "l": 3, "path": np.array([[0.0, 0.0]])}}
    )
    assert not {"nan", "object"} & set(infos[0])


def test_an_info_of_an_env_that_does_not_exist_is_refused() -> None:
    spec = EnvSpec(1, 1, num_envs=2, features=frozenset({"INFO"}))
    game = Sum(spec)
    game.write_info(1, {"a": 1})
    for env in (-1, 2):
        with pytest.raises(errors.ConfigurationError, match="0 to 1"):
            game.write_info(env, {"a": 1})
