"""bridges/calls.py: calls answered from what a game offers, without any carrier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from tests.harness.lab import Lab
from ue_rl.bridges import GymnasiumBridge
from ue_rl.bridges.calls import answer_call
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.protocol.spec import Channel, EnvType, Parameter
from ue_rl.protocol.text import decode_handshake
from ue_rl.system import errors


def refusal(bridge: Any, line: str) -> str:
    answer = answer_call(bridge, line.encode())
    assert answer.startswith(b"REFUSED="), answer
    return unquote(answer[8:].decode("ascii"))


def test_a_bridge_announces_what_the_game_offers() -> None:
    lab = Lab()
    assert lab.spec.features == {"TIME_SCALE", "PAUSE", "RENDER", "GOAL_REWARD", "ERROR", "SEQ", "AUTORESET"}
    assert lab.spec.channel is Channel.ANY
    heard = decode_handshake(lab.build_handshake().encode())
    assert heard.parameters == (Parameter("gravity", 9.8, 0.0, 20.0), Parameter("wind[m/s]", 0.0, -5.0, 5.0))
    assert heard.features == lab.spec.features
    assert lab.announce() is lab.spec


def test_a_bridge_offers_nothing_that_the_game_lacks() -> None:
    assert DoNothingBridge(2).spec.features == {"AUTORESET", "ERROR", "SEQ"}
    assert "RENDER" not in GymnasiumBridge("CartPole-v1").spec.features


@pytest.mark.parametrize("spec", [{"version": 0}, {"env_type": EnvType.RLBASE}])
def test_the_old_dialects_stay_as_they_were(spec: dict[str, Any]) -> None:
    lab = Lab(1, **spec)
    assert not lab.spec.features
    assert "PARAMS" not in lab.build_handshake()


def test_parameters_that_the_author_lists_himself_stay() -> None:
    lab = Lab()
    lab.configure(replace(lab.spec, parameters=(Parameter("gravity", 1.0, 0.0, 2.0),)))
    assert [p.value for p in lab.announce().parameters] == [1.0]


def test_a_parameter_outside_its_own_range_is_found_when_hosting_begins() -> None:
    lab = Lab()
    lab.gravity[0] = 99.0
    with pytest.raises(errors.ConfigurationError, match="a value in its range"):
        lab.announce()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("GET", b"VALUES=gravity:9.8,wind[m/s]:0"),
        ("get = gravity ; env = 1", b"VALUES=gravity:9.8"),
        ("SET=gravity:3.7", b"VALUES=gravity:3.7"),
        ("SET=gravity:0;ENV=1", b"VALUES=gravity:0"),
        ("TIME_SCALE=4", b"OK"),
        ("PAUSE=1", b"OK"),
        ("RENDER;ENV=0", b"PICTURE=2,4,3;DATA=AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"),
        ("GOALS=1,2/1,2||0,0/3,4", b"REW=0,-7"),
    ],
)
def test_answers(line: str, answer: bytes) -> None:
    got = answer_call(Lab(), line.encode())
    assert got.replace(b"-0", b"0") == answer.replace(b"-0", b"0")


def test_set_reaches_one_env_or_all() -> None:
    lab = Lab(3)
    answer_call(lab, b"SET=gravity:5")
    answer_call(lab, b"SET=gravity:7,wind[m/s]:-1;ENV=2")
    assert lab.log == [("set", "gravity", 5.0, -1), ("set", "gravity", 7.0, 2), ("set", "wind[m/s]", -1.0, 2)]
    assert [answer_call(lab, f"GET=gravity;ENV={env}".encode()) for env in range(3)] == [
        b"VALUES=gravity:5",
        b"VALUES=gravity:5",
        b"VALUES=gravity:7",
    ]
    assert answer_call(lab, b"GET=gravity") == b"VALUES=gravity:5"  # of env 0


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("GET=mass", ["no such parameter", "mass", "gravity"]),
        ("SET=mass:1", ["no such parameter", "mass"]),
        ("SET=gravity:20.5", ["out of range", "gravity", "0 to 20", "20.5"]),
        ("SET=gravity:nan", ["not a finite number"]),
        ("SET=gravity", ["number was expected"]),
        ("SET=gravity:1;ENV=2", ["env id does not exist", "0 to 1"]),
        ("GET;ENV=9", ["env id does not exist", "0 to 1"]),
        ("RENDER;ENV=2", ["env id does not exist", "0 to 1"]),
        ("RENDER;ENV=1", ["no picture"]),
        ("TIME_SCALE=0", ["TIME_SCALE"]),
        ("TIME_SCALE=-1", ["TIME_SCALE"]),
        ("PAUSE=2", ["PAUSE", "0 or 1"]),
        ("GOALS=1", ["GOALS"]),
        ("GOALS=1/2||1,2/3,4", ["GOALS"]),
        ("JUMP=1", ["not a call"]),
    ],
)
def test_refusals_say_what_is_wrong_and_change_nothing(line: str, parts: list[str]) -> None:
    lab = Lab()
    said = refusal(lab, line)
    assert all(part in said for part in parts), said
    assert not lab.log
    assert not lab.scales
    assert not lab.pauses


def test_a_set_with_one_wrong_value_sets_nothing() -> None:
    lab = Lab()
    assert "wind" in refusal(lab, "SET=gravity:1,wind[m/s]:9")
    assert not lab.log


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("GET", "list_parameters"),
        ("SET=a:1", "set_parameter"),
        ("TIME_SCALE=2", "set_time_scale"),
        ("PAUSE=1", "set_paused"),
        ("RENDER", "render"),
        ("GOALS=1/2", "compute_reward"),
    ],
)
def test_a_game_without_the_ability_says_so(line: str, method: str) -> None:
    assert refusal(DoNothingBridge(1), line) == f"this engine has no {method}"


def test_a_bug_of_the_game_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    lab.broken = True
    assert refusal(lab, "RENDER") == "the game's code failed: ZeroDivisionError('no GPU \u2026 \u00e9')"
    assert caplog.records[0].exc_info
    lab.broken = False
    assert answer_call(lab, b"GET=gravity") == b"VALUES=gravity:9.8"


@pytest.mark.parametrize("reward", [[1.0], [1.0, np.nan], [1.0, 2.0, 3.0]])
def test_wrong_rewards_of_the_game_are_refused(reward: list[float]) -> None:
    lab = Lab()
    lab.compute_reward = lambda achieved, desired: np.array(reward)  # type: ignore[method-assign, assignment]
    refusal(lab, "GOALS=1/2||3/4")


def test_the_callback_knows_its_caller_and_the_bridge_is_locked() -> None:
    lab = Lab()
    seen: list[Any] = []
    lab.set_time_scale = lambda scale: seen.append(lab.lockstep.caller)  # type: ignore[method-assign]
    answer_call(lab, b"TIME_SCALE=2")
    assert seen[0] is not None
    assert lab.lockstep.caller is None


# -- pause


def test_while_it_is_paused_a_free_running_game_stands_still() -> None:
    lab = Lab()
    lab.start_training()
    ticks: list[float] = []
    lab.lockstep.tick_training = ticks.append  # type: ignore[method-assign]
    lab.update_rl(0.1)
    answer_call(lab, b"PAUSE=1")
    lab.update_rl(0.2)
    lab.inbox.command[0] = lab.inbox.STEP
    lab.update_rl(0.3)  # what is asked for is done
    lab.inbox.command[0] = lab.inbox.NOTHING
    answer_call(lab, b"PAUSE=0")
    lab.update_rl(0.4)
    assert ticks == [0.1, 0.3, 0.4]
    assert lab.pauses == [True, False]


def test_a_game_goes_on_when_its_trainer_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    answer_call(lab, b"PAUSE=1")
    lab.lockstep.forget_requests()
    lab.lockstep.forget_requests()
    assert lab.pauses == [True, False]
    assert not lab.lockstep.paused

    def fail(paused: bool) -> None:
        raise ValueError("stuck")

    answer_call(lab, b"PAUSE=1")
    lab.set_paused = fail  # type: ignore[method-assign]
    lab.lockstep.forget_requests()
    assert not lab.lockstep.paused
    assert "set_paused" in caplog.text


# -- parameters beside a reset


def reset_with(lab: Lab, given: dict[int, dict[str, float]]) -> None:
    lab.start_training()
    for env, values in given.items():
        lab.inbox.command[env] = lab.inbox.RESET
        lab.inbox.parameters[env] = values
    lab.update_rl(0.0)


def test_parameters_are_set_before_the_reset() -> None:
    lab = Lab()
    reset_with(lab, {0: {"gravity": 1.5}, 1: {"gravity": 2.5}})
    assert lab.log[:2] == [("set", "gravity", 1.5, 0), ("set", "gravity", 2.5, 1)]
    assert lab.log[2:] == [("reset", 0, 1.5), ("reset", 1, 2.5)]
    assert not lab.inbox.parameters
    assert lab.outbox.obs[:, 0].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("values", "said"),
    [({"mass": 1.0}, "no such parameter"), ({"gravity": 21.0}, "0 to 20"), ({"gravity": -1.0}, "range")],
)
def test_a_wrong_parameter_beside_a_reset_is_the_trainers_error(values: dict[str, float], said: str) -> None:
    lab = Lab()
    with pytest.raises(errors.MalformedMessage, match=said) as caught:
        reset_with(lab, {0: {"gravity": 1.0}, 1: values})
    assert (caught.value.env_id, caught.value.fault, caught.value.field) == (1, "trainer", next(iter(values)))
    assert not lab.log


def test_parameters_for_a_game_that_has_none() -> None:
    bridge = DoNothingBridge(1)
    bridge.start_training()
    bridge.inbox.command[0] = bridge.inbox.RESET
    bridge.inbox.parameters[0] = {"gravity": 1.0}
    with pytest.raises(errors.MalformedMessage, match="no set_parameter"):
        bridge.update_rl(0.0)
