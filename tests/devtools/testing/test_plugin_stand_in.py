"""The stand-in for the deployed plugin, driven with bare sockets: one test for each thing that the plugin does.

Where an order in time matters the test ticks the game itself, so that nothing is waited for. Its text:
test_plugin_text.py.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from tests.devtools.testing.conftest import Connected, Dial, Make, Ticked, answer_after
from ue_rl.devtools.testing import PluginStandIn

# -- connections


@pytest.mark.parametrize(
    ("options", "handshake"),
    [
        ({"num_envs": 2}, "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2"),
        ({"env_type": "SINGLE"}, "CONFIG:OBS=4;ACT=2;ENV_TYPE=SINGLE"),
        ({"env_type": "RLBASE"}, "CONFIG:OBS=4;ACT=2;ENV_TYPE=RLBASE;"),
        ({"env_type": "RLBASE", "handshake": "CONFIG:OBS=4;ACT=2"}, "CONFIG:OBS=4;ACT=2"),
    ],
)
def test_the_first_connection_gets_the_handshake_at_once(
    ue_rl_plugin_stand_in: Make, dial: Dial, options: dict[str, Any], handshake: str
) -> None:
    assert dial(ue_rl_plugin_stand_in(**options)).line() == handshake


def test_the_admin_socket_is_never_read(dial: Dial, manual: Make) -> None:
    game = manual(num_envs=1)
    admin = dial(game)
    game.run_until(admin.has_data)
    assert admin.line() == game.handshake
    env = dial(game)
    game.run_until(lambda: game.all_connected)
    admin.send("ACT=RESET;ENV=0\n" * 3)
    env.send("ACT=RESET\n")
    answer_after(game, env)
    game.tick(5)
    assert not admin.has_data()
    assert [line for _, _, line in game.lines] == ["ACT=RESET"]


def test_silence_until_all_env_sockets_are_there_then_early_commands_are_answered(dial: Dial, manual: Make) -> None:
    game = manual(num_envs=3)
    admin = dial(game)
    game.run_until(admin.has_data)
    assert admin.line() == game.handshake
    first, second = dial(game), dial(game)
    first.send("ACT=RESET\n")
    second.send("ACT=RESET\n")
    game.tick(20)
    assert not first.has_data()
    assert not second.has_data()
    third = dial(game)
    game.run_until(lambda: first.has_data() and second.has_data())
    assert first.line().endswith(";ENV=0")
    assert second.line().endswith(";ENV=1")
    assert not third.has_data()


def test_env_sockets_are_numbered_in_the_order_of_accept(connected: Connected) -> None:
    _, _, envs = connected(num_envs=4)
    for env in reversed(envs):
        env.send("ACT=RESET\n")
    assert [env.line()[-6:] for env in envs] == [f";ENV={i}" for i in range(4)]


def test_one_connection_too_many_is_accepted_and_never_answered(dial: Dial, ticked: Ticked) -> None:
    game, (_, env) = ticked(num_envs=1)
    extra = dial(game)  # connects
    extra.send("ACT=RESET\n")
    env.send("ACT=RESET\n")
    answer_after(game, env)
    game.tick(20)
    assert not extra.has_data()


def test_each_accept_poll_takes_one_connection(dial: Dial, manual: Make) -> None:
    game = manual(num_envs=2, accept_interval=1000.0)
    admin = dial(game)
    env = dial(game)
    game.tick()
    assert admin.line() == game.handshake
    game.tick(20)  # the next poll is not due
    env.send("ACT=RESET\n")
    game.tick(5)
    assert not env.has_data()
    assert not game.all_connected


def test_accepts_at_the_plugins_pace(connected: Connected) -> None:
    start = time.monotonic()
    _, _, envs = connected(num_envs=2, accept_interval=0.03)
    assert envs[1].ask("ACT=RESET").endswith("ENV=1")
    assert time.monotonic() - start >= 0.06  # the admin at once, then one poll for each env


def test_a_dead_first_client_leaves_the_next_one_without_a_handshake(dial: Dial, manual: Make) -> None:
    game = manual(num_envs=1)
    first = dial(game)
    game.run_until(first.has_data)
    first.close()
    second = dial(game)
    game.run_until(lambda: game.all_connected)
    game.tick(5)
    assert not second.has_data()  # no handshake: it is env 0 now
    second.send("ACT=RESET\n")
    assert answer_after(game, second)[1].endswith(";ENV=0")


def test_a_closed_env_socket_keeps_its_slot(dial: Dial, ticked: Ticked) -> None:
    game, (_, zero, one) = ticked(num_envs=2)
    zero.close()
    again = dial(game)
    again.send("ACT=RESET\n")
    one.send("ACT=RESET\n")
    assert answer_after(game, one)[1].endswith(";ENV=1")
    game.tick(20)
    assert not again.has_data()
    assert [env for _, env, _ in game.lines] == [1]


def test_after_all_have_gone_a_new_admin_gets_no_handshake(dial: Dial, ticked: Ticked) -> None:
    game, clients = ticked(num_envs=1)
    for client in clients:
        client.close()
    new_admin = dial(game)
    game.tick(20)
    assert not new_admin.has_data()


# -- time


def test_a_long_line_takes_one_tick_per_1024_bytes(ticked: Ticked) -> None:
    game, (_, env) = ticked(num_envs=1)
    line = "ACT=" + ",".join(["0.25"] * 2003)
    line += "0" * (10_019 - len(line) - 1) + "\n"
    assert len(line) == 10_019
    env.send(line)
    ticks, answer = answer_after(game, env)
    assert ticks == 10
    assert answer.endswith(";ENV=0")


def test_one_line_per_env_and_tick(ticked: Ticked) -> None:
    game, (_, zero, one) = ticked(num_envs=2)
    zero.send("ACT=RESET\nACT=0.1,0.1\nACT=0.2,0.2\n")
    one.send("ACT=RESET\nACT=0.1,0.1\n")
    game.run_until(lambda: len(game.lines) == 5)
    first_tick = game.lines[0][0]
    assert [(tick - first_tick, env) for tick, env, _ in game.lines] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert [zero.line() != "" for _ in range(3)] == [True] * 3


def test_envs_answer_in_the_tick_in_which_their_action_ends(ticked: Ticked) -> None:
    game, (_, *envs) = ticked(num_envs=3, action_ticks=[1, 4, 2])
    for env in envs:
        env.send("ACT=0.1,0.1\n")
    came: dict[int, int] = {}
    for tick in range(6):
        game.tick()
        for i, env in enumerate(envs):
            if i not in came and env.has_data():
                came[i] = tick
    assert [came[i] - came[0] for i in range(3)] == [0, 3, 1]


def test_a_new_action_takes_the_running_ones_place(ticked: Ticked) -> None:
    game, (_, env) = ticked(num_envs=1, action_ticks=3)
    env.send("ACT=0.1,0.1\nACT=0.2,0.2\n")
    game.run_until(env.has_data)
    game.tick(10)
    env.line()
    assert not env.has_data()  # two actions, one answer


def test_a_reset_ends_the_running_action_and_is_answered_in_its_tick(ticked: Ticked) -> None:
    game, (_, env) = ticked(num_envs=1, action_ticks=50)
    env.send("ACT=0.1,0.1\n")
    game.run_until(lambda: len(game.lines) == 1)
    env.send("ACT=RESET\n")
    game.run_until(lambda: len(game.lines) == 2)
    assert env.has_data()
    game.tick(60)
    env.line()
    assert not env.has_data()


def test_answers_come_at_the_games_tick_rate(connected: Connected) -> None:
    _, _, (env,) = connected(num_envs=1, tick_rate=100.0)
    env.ask("ACT=RESET")
    start = time.monotonic()
    for _ in range(10):
        env.ask("ACT=0.1,0.1")
    assert time.monotonic() - start >= 0.08  # ten rounds at 100 ticks a second, whatever the client does


# -- routing


def test_an_explicit_env_routes_the_message(connected: Connected) -> None:
    _, _, envs = connected(num_envs=2)
    envs[0].send("ACT=RESET;ENV=1\n")
    assert envs[1].line().endswith(";ENV=1")


def test_a_batch_on_one_env_socket_is_answered_on_each_envs_own(connected: Connected) -> None:
    _, _, envs = connected(num_envs=3)
    envs[1].send("ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n")
    assert [env.line()[-6:] for env in envs] == [";ENV=0", ";ENV=1", ";ENV=2"]


@pytest.mark.parametrize("env_id", ["2", "-1", "99"])
def test_an_env_id_out_of_range_aborts_the_game(dial: Dial, connected: Connected, env_id: str) -> None:
    game, admin, envs = connected(num_envs=2)
    envs[0].send(f"ACT=0.1,0.1;ENV={env_id}\n")
    assert envs[0].read_to_end() == envs[1].read_to_end() == admin.read_to_end() == b""
    assert game.aborted is not None
    assert env_id in game.aborted
    with pytest.raises(ConnectionError):
        dial(game)


def test_a_message_without_env_gets_a_stray_line(connected: Connected) -> None:
    _, _, envs = connected(num_envs=2, tag_lines=False)
    stray = envs[1].ask("ACT=0.1,0.1")
    assert "PROBLEM IS HERE" in stray
    assert "ENV=" not in stray
    assert envs[1].ask("ACT=RESET;ENV=1").endswith(";ENV=1")


# -- RLBASE


def test_rlbase_training_complete_closes(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    client = dial(ue_rl_plugin_stand_in(env_type="RLBASE"))
    client.line()
    client.line()
    client.send("TRAINING_COMPLETE\n")
    assert client.read_to_end() == b""


def test_rlbase_takes_no_second_connection(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    game = ue_rl_plugin_stand_in(env_type="RLBASE")
    first = dial(game)
    first.line()
    first.close()
    with pytest.raises(ConnectionError):
        dial(game)


# -- the harness itself


def test_closing_is_idempotent_and_frees_the_port(ue_rl_plugin_stand_in: Make) -> None:
    game = ue_rl_plugin_stand_in()
    game.close()
    game.close()
    with pytest.raises(ConnectionError):
        socket.create_connection(game.address, timeout=1)


@pytest.mark.parametrize(
    "options",
    [{"env_type": "LISTEN"}, {"env_type": "SINGLE", "num_envs": 2}, {"num_envs": 2, "action_ticks": [1]}],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"LISTEN|one env|action_ticks"):
        PluginStandIn(**options)
