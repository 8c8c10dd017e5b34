"""The stand-in for the deployed plugin, driven with bare sockets: one test for each thing that the plugin does.

Where an order in time matters the test ticks the game itself, so that nothing is waited for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ue_rl.testing import ObsFormat, PluginStandIn, RawClient, TinyTask

Make = Callable[..., PluginStandIn]
Dial = Callable[[PluginStandIn], RawClient]


@pytest.fixture
def manual() -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(PluginStandIn(manual=True, **options))


def connect_all(game: PluginStandIn, dial: Dial) -> tuple[RawClient, list[RawClient]]:
    """Admin and env sockets of a game that ticks by itself."""
    admin = dial(game)
    assert admin.line() == game.handshake
    return admin, [dial(game) for _ in range(game.num_envs)]


def joined(game: PluginStandIn, dial: Dial) -> list[RawClient]:
    """Admin and env sockets of a game that the test ticks, all accepted."""
    clients = [dial(game) for _ in range(1 + game.num_envs)]
    game.run_until(lambda: game.all_connected)
    return clients


def answer_after(game: PluginStandIn, client: RawClient) -> tuple[int, str]:
    """(ticks it took, the answer) in a game that the test ticks."""
    return game.run_until(client.has_data), client.line()


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


def test_the_admin_socket_is_never_read(manual: Make, dial: Dial) -> None:
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


def test_silence_until_all_env_sockets_are_there_then_early_commands_are_answered(manual: Make, dial: Dial) -> None:
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


def test_env_sockets_are_numbered_in_the_order_of_accept(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=4), dial)
    for env in reversed(envs):
        env.send("ACT=RESET\n")
    assert [env.line()[-6:] for env in envs] == [f";ENV={i}" for i in range(4)]


def test_one_connection_too_many_is_accepted_and_never_answered(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1)
    _, env = joined(game, dial)
    extra = dial(game)  # connects
    extra.send("ACT=RESET\n")
    env.send("ACT=RESET\n")
    answer_after(game, env)
    game.tick(20)
    assert not extra.has_data()


def test_each_accept_poll_takes_one_connection(manual: Make, dial: Dial) -> None:
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


def test_accepts_at_the_plugins_pace(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    start = time.monotonic()
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=2, accept_interval=0.03), dial)
    assert envs[1].ask("ACT=RESET").endswith("ENV=1")
    assert time.monotonic() - start >= 0.06  # the admin at once, then one poll for each env


def test_a_dead_first_client_leaves_the_next_one_without_a_handshake(manual: Make, dial: Dial) -> None:
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


def test_a_closed_env_socket_keeps_its_slot(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=2)
    _, zero, one = joined(game, dial)
    zero.close()
    again = dial(game)
    again.send("ACT=RESET\n")
    one.send("ACT=RESET\n")
    assert answer_after(game, one)[1].endswith(";ENV=1")
    game.tick(20)
    assert not again.has_data()
    assert [env for _, env, _ in game.lines] == [1]


def test_after_all_have_gone_a_new_admin_gets_no_handshake(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1)
    for client in joined(game, dial):
        client.close()
    new_admin = dial(game)
    game.tick(20)
    assert not new_admin.has_data()


def test_single_has_one_env_socket(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    task = TinyTask()
    _, (env,) = connect_all(ue_rl_plugin_stand_in(env_type="SINGLE"), dial)
    assert env.ask("ACT=RESET") == spelled(task.reset(), task.reward, 0)
    obs, reward, done = task.step([0.5, -1.0])
    assert env.ask("ACT=0.5,-1;ENV=7") == spelled(obs, reward, done)  # SINGLE reads no ENV


def spelled(obs: list[float], reward: float, done: bool | int) -> str:
    return f"OBS={','.join(f'{x:.2f}' for x in obs)};REW={reward:.2f};DONE={int(done)}"


# -- reading


def test_a_long_line_takes_one_tick_per_1024_bytes(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1)
    _, env = joined(game, dial)
    line = "ACT=" + ",".join(["0.25"] * 2003)
    line += "0" * (10_019 - len(line) - 1) + "\n"
    assert len(line) == 10_019
    env.send(line)
    ticks, answer = answer_after(game, env)
    assert ticks == 10
    assert answer.endswith(";ENV=0")


def test_one_line_per_env_and_tick(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=2)
    _, zero, one = joined(game, dial)
    zero.send("ACT=RESET\nACT=0.1,0.1\nACT=0.2,0.2\n")
    one.send("ACT=RESET\nACT=0.1,0.1\n")
    game.run_until(lambda: len(game.lines) == 5)
    first_tick = game.lines[0][0]
    assert [(tick - first_tick, env) for tick, env, _ in game.lines] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert [zero.line() != "" for _ in range(3)] == [True] * 3


def test_answers_have_no_size_limit(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1, obs_size=500), dial)
    answer = env.ask("ACT=RESET")
    assert len(answer) > 2048
    assert answer.endswith(";ENV=0")


@pytest.mark.parametrize(
    "line",
    ["ACT=0.5,-0.5\r", "act=0.5,-0.5", "ACT= 0.5 , -0.5 ", "ACT=0.5,-0.5;HINT=left;SEED=3", "SEED=3;ACT=0.5,-0.5"],
)
def test_reads_crlf_lower_case_spaces_and_unknown_fields(ue_rl_plugin_stand_in: Make, dial: Dial, line: str) -> None:
    task = TinyTask()
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1), dial)
    env.ask("act=reset")
    task.reset()
    assert env.ask(line) == spelled(*task.step([0.5, -0.5])) + ";ENV=0"


def test_an_empty_line_gets_no_answer(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1)
    _, env = joined(game, dial)
    env.send("\n\n\nACT=RESET\n")
    assert answer_after(game, env)[1].endswith(";ENV=0")
    game.tick(5)
    assert not env.has_data()
    assert [line for _, _, line in game.lines] == ["ACT=RESET"]


def test_a_line_without_act_is_an_empty_action_and_is_answered(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    task = TinyTask()
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1), dial)
    env.ask("ACT=RESET")
    task.reset()
    for line in ("HELLO", "ACT=", "\r"):
        assert env.ask(line) == spelled(*task.step([])) + ";ENV=0"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5", [0.5]),
        ("0.5,0.5,0.5,0.5", [0.5] * 4),
        ("nan,0.5", [float("nan"), 0.5]),
        ("two,0.5", [0.0, 0.5]),
        ("0.5xyz,,0.25", [0.5, 0.25]),
        ("inf,-inf", [float("inf"), float("-inf")]),
        ("1e-1,-.5", [0.1, -0.5]),
    ],
)
def test_the_engine_never_complains_about_an_action(
    ue_rl_plugin_stand_in: Make, dial: Dial, text: str, values: list[float]
) -> None:
    task = TinyTask()
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1), dial)
    env.ask("ACT=RESET")
    task.reset()
    assert env.ask(f"ACT={text}") == spelled(*task.step(values)) + ";ENV=0"


@pytest.mark.parametrize("line", ["ACT=RESET", "act=reset", "ACT=PLEASE RESET NOW"])
def test_reset_is_recognised_anywhere_in_the_action(ue_rl_plugin_stand_in: Make, dial: Dial, line: str) -> None:
    task = TinyTask()
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1), dial)
    obs = ",".join(f"{x:.2f}" for x in task.reset())
    assert env.ask(line).startswith(f"OBS={obs};REW=")


# -- routing


def test_an_explicit_env_routes_the_message(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=2), dial)
    envs[0].send("ACT=RESET;ENV=1\n")
    assert envs[1].line().endswith(";ENV=1")


def test_a_batch_on_one_env_socket_is_answered_on_each_envs_own(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=3), dial)
    envs[1].send("ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n")
    assert [env.line()[-6:] for env in envs] == [";ENV=0", ";ENV=1", ";ENV=2"]


@pytest.mark.parametrize("env_id", ["2", "-1", "99"])
def test_an_env_id_out_of_range_aborts_the_game(ue_rl_plugin_stand_in: Make, dial: Dial, env_id: str) -> None:
    game = ue_rl_plugin_stand_in(num_envs=2)
    admin, envs = connect_all(game, dial)
    envs[0].send(f"ACT=0.1,0.1;ENV={env_id}\n")
    assert envs[0].read_to_end() == envs[1].read_to_end() == admin.read_to_end() == b""
    assert game.aborted is not None
    assert env_id in game.aborted
    with pytest.raises(ConnectionError):
        dial(game)


def test_a_message_without_env_gets_a_stray_line(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=2, tag_lines=False), dial)
    stray = envs[1].ask("ACT=0.1,0.1")
    assert "PROBLEM IS HERE" in stray
    assert "ENV=" not in stray
    assert envs[1].ask("ACT=RESET;ENV=1").endswith(";ENV=1")


# -- answers


@pytest.mark.parametrize(
    ("form", "decimals", "spelling"),
    [
        (ObsFormat.ARRAY, 2, "{0:.2f},{1:.2f},{2:.2f},{3:.2f};"),
        (ObsFormat.TWO_VECTORS, 2, "{0:.2f},{1:.2f};{2:.2f},{3:.2f};"),
        (ObsFormat.FLOAT_THEN_VECTOR, 2, "{0:.2f};{1:.2f},{2:.2f},{3:.2f};"),
        (ObsFormat.FLOATS, 2, "{0:.2f};{1:.2f};{2:.2f};{3:.2f};"),
        (ObsFormat.COMMA, 2, "{0:.2f},{1:.2f},{2:.2f},{3:.2f}"),
        (ObsFormat.ARRAY, 6, "{0:.6f},{1:.6f},{2:.6f},{3:.6f};"),
    ],
)
@pytest.mark.parametrize("env_type", ["MULTI", "SINGLE", "RLBASE"])
def test_the_spellings_of_an_observation(
    ue_rl_plugin_stand_in: Make,
    dial: Dial,
    form: ObsFormat,
    decimals: int,
    spelling: str,
    env_type: str,
) -> None:
    game = ue_rl_plugin_stand_in(env_type=env_type, num_envs=1, obs_format=form, decimals=decimals)
    task = TinyTask(decimals=decimals)
    if env_type == "RLBASE":
        client = dial(game)
        assert client.line() == game.handshake
        assert client.line() == spelling.format(0, 0, 0, 0) + "-0.00;1"
        client.ask("RESET")
        task.reset()
        obs, reward, done = task.step([0.3, -0.7])
        assert client.ask("0.3,-0.7") == f"{spelling.format(*obs)}{reward:.2f};{int(done)}"
        return
    _, (env,) = connect_all(game, dial)
    env.ask("ACT=RESET")
    task.reset()
    obs, reward, done = task.step([0.3, -0.7])
    tag = ";ENV=0" if env_type == "MULTI" else ""
    assert env.ask("ACT=0.3,-0.7") == f"OBS={spelling.format(*obs)}REW={reward:.2f};DONE={int(done)}{tag}"


def test_done_in_the_answer_to_a_reset_means_nothing(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=2), dial)
    flags = {env.ask("ACT=RESET").split(";DONE=")[1][0] for env in envs}
    assert flags == {"0", "1"}


def test_envs_answer_in_the_tick_in_which_their_action_ends(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=3, action_ticks=[1, 4, 2])
    _, *envs = joined(game, dial)
    for env in envs:
        env.send("ACT=0.1,0.1\n")
    came: dict[int, int] = {}
    for tick in range(6):
        game.tick()
        for i, env in enumerate(envs):
            if i not in came and env.has_data():
                came[i] = tick
    assert [came[i] - came[0] for i in range(3)] == [0, 3, 1]


def test_a_new_action_takes_the_running_ones_place(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1, action_ticks=3)
    _, env = joined(game, dial)
    env.send("ACT=0.1,0.1\nACT=0.2,0.2\n")
    game.run_until(env.has_data)
    game.tick(10)
    env.line()
    assert not env.has_data()  # two actions, one answer


def test_a_reset_ends_the_running_action_and_is_answered_in_its_tick(manual: Make, dial: Dial) -> None:
    game = manual(num_envs=1, action_ticks=50)
    _, env = joined(game, dial)
    env.send("ACT=0.1,0.1\n")
    game.run_until(lambda: len(game.lines) == 1)
    env.send("ACT=RESET\n")
    game.run_until(lambda: len(game.lines) == 2)
    assert env.has_data()
    game.tick(60)
    env.line()
    assert not env.has_data()


def test_answers_come_at_the_games_tick_rate(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, (env,) = connect_all(ue_rl_plugin_stand_in(num_envs=1, tick_rate=100.0), dial)
    env.ask("ACT=RESET")
    start = time.monotonic()
    for _ in range(10):
        env.ask("ACT=0.1,0.1")
    assert time.monotonic() - start >= 0.08  # ten rounds at 100 ticks a second, whatever the client does


def test_episodes_equal_the_task_in_process(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    _, envs = connect_all(ue_rl_plugin_stand_in(num_envs=2, episode_length=3), dial)
    tasks = [TinyTask(i, episode_length=3) for i in range(2)]
    for env, task in zip(envs, tasks, strict=True):
        env.ask("ACT=RESET")
        task.reset()
    ends = set()
    for step in range(20):
        for i, (env, task) in enumerate(zip(envs, tasks, strict=True)):
            action = [(step % 5 - 2) / 2, i - 0.5]
            obs, reward, done = task.step(action)
            assert env.ask(f"ACT={action[0]},{action[1]}") == spelled(obs, reward, done) + f";ENV={i}"
            if done:
                ends.add((i, step))
                obs_text = ",".join(f"{x:.2f}" for x in task.reset())
                assert env.ask("ACT=RESET").startswith(f"OBS={obs_text};")
    assert len({step for _, step in ends}) > 2  # envs end on different steps


# -- RLBASE


def test_rlbase_speaks_first_and_takes_bare_commands(ue_rl_plugin_stand_in: Make, dial: Dial) -> None:
    client = dial(ue_rl_plugin_stand_in(env_type="RLBASE"))
    assert client.line() == "CONFIG:OBS=4;ACT=2;ENV_TYPE=RLBASE;"
    assert client.line() == "0.00,0.00,0.00,0.00;-0.00;1"
    task = TinyTask()
    obs = ",".join(f"{x:.2f}" for x in task.reset())
    assert client.ask("RESET").startswith(f"{obs};")
    values, reward, done = task.step([0.1, -0.2])
    expected = f"{','.join(f'{x:.2f}' for x in values)};{reward:.2f};{int(done)}"
    assert client.ask("0.10,-0.20") == expected


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
