"""samples/unity: engines in C# with this library's trainer and with bare sockets, over TCP."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.samples import programs
from tests.samples.programs import Trainer, connect
from tests.samples.reach import Reach, rollout
from tests.samples.unity_engine import MARKS, NUM_ENVS, started
from tests.support.doubles import some_doubles
from tests.support.same import assert_same
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.testing.raw_client import RawClient
from ue_rl.system.errors import UeRlError, UnsupportedByEngine

pytestmark = MARKS


def test_the_rollout_is_that_of_the_same_task_in_python_to_the_bit_on_both_wirings(reach: int, probe: Path) -> None:
    with run_in_thread(Reach(NUM_ENVS, number=np.float64, shift=11)) as server:
        expected = rollout(connect(server.port, channel="shared"))
    # the MonoBehaviour in Unity's order of FixedUpdate, physics and Update: each step is exactly one physics tick
    with started([probe, "serve", "behaviour", "0", str(NUM_ENVS), "-port=0"]) as behaviour:
        for port in (reach, behaviour):
            assert_same(rollout(connect(port, channel="shared")), expected)
            assert_same(rollout(connect(port, channel="per_env")), expected)
            assert_same(rollout(connect(port, transport="shm")), expected)


def test_masks_options_infos_and_truncation(sink: int) -> None:
    with Trainer(sink) as trainer:
        assert trainer.ask("ACT=RESET;ENV=2;SEED=7;OPTIONS=%7B%22a%22%3A%22short%22%7D") == (
            "OBS=0,9.8,0,7;REW=0;DONE=0;ENV=2;MASK=01111"
        )
        assert trainer.ask("ACT=-1,1;ENV=2") == (
            "OBS=1,9.8,0,0;REW=1;DONE=1;ENV=2;TRUNC=1;MASK=10111;"
            "INFO=%7B%22is_success%22%3A%20true%2C%20%22where%22%3A%20%22Z%C3%BCrich%22%7D"
        )
    for channel in ("shared", "per_env"):
        env = connect(sink, channel=channel)
        env.reset()
        assert [mask[:3].tolist() for mask in env.env_method("action_masks")] == [[False, True, True]] * NUM_ENVS
        for _ in range(20):
            _, _, dones, infos = env.step(np.tile(np.float32([1, 0]), (NUM_ENVS, 1)))
        assert dones.all()
        assert infos[0]["where"] == "Zürich"
        assert infos[0]["TimeLimit.truncated"]
        env.close()


def test_parameters_and_calls(sink: int) -> None:
    env = connect(sink)
    env.reset()
    assert env.get_params() == {"gravity": 9.8, "top speed": 0.1}
    env.set_params({"gravity": 1 / 3, "top speed": -1e-9}, env_id=1)
    assert env.get_params(env_id=1) == {"gravity": 1 / 3, "top speed": -1e-9}
    assert env.get_params(env_id=0)["gravity"] == 9.8
    env.close()
    with Trainer(sink) as trainer:
        for sent in some_doubles():
            answer = trainer.ask(f"SET=top%20speed:{sent!r}")
            assert float(answer.removeprefix("VALUES=top%20speed:")).hex() == sent.hex()
        for bound in ("0", "20", "2e1"):
            assert trainer.ask(f"SET=gravity:{bound}") == f"VALUES=gravity:{float(bound):g}"
        assert trainer.ask("SET=top%20speed:0.1") == "VALUES=top%20speed:0.1"
        assert trainer.ask("SET=gravity:21") == "REFUSED=the%20trainer%20broke%20the%20protocol%3A%20" + (
            "gravity%20is%20outside%20of%200%20to%2020%3A%2021"
        )
        assert trainer.ask("ACT=RESET;ENV=0;SET=gravity:3.5,top%20speed:2").startswith("OBS=0,3.5,")
        assert trainer.ask("GET=gravity") == "VALUES=gravity:3.5"
        assert trainer.ask("SET=gravity:9.8") == "VALUES=gravity:9.8"
        assert trainer.ask("TIME_SCALE=2") == "OK"
        assert trainer.ask("TIME_SCALE=101") == "REFUSED=not%20so%20fast"
        assert trainer.ask("GOALS=1,2/3,4||5,0.1/7,8") == "REW=-8,-19.8"
        assert (
            trainer.ask("RENDER;ENV=3")
            == "PICTURE=2,1,3;DATA=" + base64.b64encode(bytes([0, 1, 2, 3, 3, 255])).decode()
        )
        assert trainer.ask("TIME_SCALE=1") == trainer.ask("PAUSE=1") == "OK"
    with Trainer(sink) as trainer:  # the game went on when the session ended, so it can be paused again
        assert trainer.ask("PAUSE=1") == trainer.ask("PAUSE=0") == "OK"


def test_an_action_may_take_several_ticks(sink: int) -> None:
    with Trainer(sink) as trainer:
        trainer.ask("ACT=RESET;ENV=0;OPTIONS=%7B%22a%22%3A%22slow%22%7D")
        assert trainer.ask("ACT=1,1;ENV=0").startswith("OBS=5,")
        trainer.send("ACT=1,1;ENV=0\nACT=1,1;ENV=0\n")
        assert "env%200%20was%20asked%20before%20its%20answer" in trainer.line()


def test_agents_come_and_go(agents: int) -> None:
    from ue_rl.envs.agents import GroupVecEnv

    with Trainer(agents) as trainer:
        assert "CHANNEL=ANY;FEATURES=TRUNC,ERROR,SEQ;AGENTS=hider:2,seeker:1;OBS.hider=2;" in trainer.handshake
        assert trainer.ask("ACT=RESET;ENV=1") == (
            "OBS=100,100;REW=0;DONE=0;ENV=1;AGENT=0||OBS=120,120,120;REW=0;DONE=0;ENV=1;AGENT=2"
        )
        both = "ACT=0.5,1;ENV=1;AGENT=0||ACT=2;ENV=1;AGENT=2"
        assert trainer.ask(both).count("AGENT=") == 2
        assert "AGENT=1" in trainer.ask(both)  # it has just come
        third = trainer.ask(both + "||ACT=1,1;ENV=1;AGENT=1")
        assert third.endswith("||OBS=123,123,123;REW=2;DONE=1;ENV=1;AGENT=2")
        assert "agent%202%20of%20env%201%20is%20not%20there" in trainer.ask(both + "||ACT=1,1;ENV=1;AGENT=1")
    env = GroupVecEnv(
        programs.carrier(agents, "auto"),
        "hider",
        others={"seeker": lambda obs: np.ones(len(obs), np.float32)},
    )
    assert env.reset().shape == (4, 2)
    env.step(np.zeros((4, 2), np.float32))
    env.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("fail at reset", "the game cannot go on: the level is missing"),
        ("fail in step", "the game cannot go on: a bug of the game"),
        ("nan", "observation 2 of env 0 is NaN"),
    ],
)
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_game_that_fails_ends_the_session_with_an_error_line(sink: int, options: str, why: str, channel: str) -> None:
    env = connect(sink, channel=channel)
    env.set_options([{"mood": options}] + [{}] * (NUM_ENVS - 1))
    with pytest.raises(UeRlError, match=why):
        env.reset()
        env.step(np.zeros((NUM_ENVS, 2), np.float32))
    env.close()
    env = connect(sink)
    assert env.reset().shape == (NUM_ENVS, 4)
    with pytest.raises(UnsupportedByEngine):
        env.set_params({"speed": 1.0})
    env.close()


def test_a_trainer_that_comes_right_after_another_is_not_told_to_wait_for_it(reach: int) -> None:
    for turn in range(60):
        with Trainer(reach) as trainer:  # it reads CONFIG first, not BUSY
            trainer.ask("ACT=RESET;ENV=3" if turn % 2 else "ACT=1,nan;ENV=0")


def test_each_answer_has_the_number_of_its_request(sink: int) -> None:
    with RawClient(("127.0.0.1", sink)) as client:
        assert "SEQ" in client.line().partition("FEATURES=")[2].partition(";")[0].split(",")
        programs.ask_with_numbers(client, "0,1")
    programs.ask_env_sockets_with_numbers(sink, NUM_ENVS, "0,1")


def test_the_plugin_s_trainer_may_start_for_long(probe: Path) -> None:
    with started([probe, "serve", "plain", "0", str(NUM_ENVS), "0.1", "30"]) as port:
        programs.start_for_long(port, NUM_ENVS)
        programs.give_way(port, 0)
        programs.give_up(port)
    with started([probe, "serve", "plain", "0", str(NUM_ENVS), "0.1", "0.2"]) as port:
        programs.give_way(port, 1)
