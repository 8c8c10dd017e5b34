"""How the stand-in for the deployed plugin reads and writes its text; what it answers is its task's."""

from __future__ import annotations

import pytest

from tests.devtools.testing.conftest import Begun, Connected, Dial, Make, Ticked, answer_after
from ue_rl.devtools.testing import ObsFormat, TinyTask


def spelled(obs: list[float], reward: float, done: bool | int) -> str:
    return f"OBS={','.join(f'{x:.2f}' for x in obs)};REW={reward:.2f};DONE={int(done)}"


# -- reading


def test_answers_have_no_size_limit(connected: Connected) -> None:
    _, _, (env,) = connected(num_envs=1, obs_size=500)
    answer = env.ask("ACT=RESET")
    assert len(answer) > 2048
    assert answer.endswith(";ENV=0")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        # a carriage return, lower case, spaces, and fields that it does not know
        *((line, [0.5, -0.5]) for line in (
            "ACT=0.5,-0.5\r", "act=0.5,-0.5", "ACT= 0.5 , -0.5 ", "ACT=0.5,-0.5;HINT=left;SEED=3",
            "SEED=3;ACT=0.5,-0.5",
        )),
        # without an action it is an empty one
        ("HELLO", []), ("ACT=", []), ("\r", []),
        # and of no action it complains
        ("ACT=0.5", [0.5]), ("ACT=0.5,0.5,0.5,0.5", [0.5] * 4), ("ACT=nan,0.5", [NAN, 0.5]),
        ("ACT=two,0.5", [0.0, 0.5]), ("ACT=0.5xyz,,0.25", [0.5, 0.25]), ("ACT=inf,-inf", [INF, -INF]),
        ("ACT=1e-1,-.5", [0.1, -0.5]),
    ],
)  # fmt: skip
def test_a_line_is_answered_whatever_its_action(begun: Begun, line: str, values: list[float]) -> None:
    env, task = begun()
    assert env.ask(line) == spelled(*task.step(values)) + ";ENV=0"


def test_an_empty_line_gets_no_answer(ticked: Ticked) -> None:
    game, (_, env) = ticked(num_envs=1)
    env.send("\n\n\nACT=RESET\n")
    assert answer_after(game, env)[1].endswith(";ENV=0")
    game.tick(5)
    assert not env.has_data()
    assert [line for _, _, line in game.lines] == ["ACT=RESET"]


@pytest.mark.parametrize("line", ["ACT=RESET", "act=reset", "ACT=PLEASE RESET NOW"])
def test_reset_is_recognised_anywhere_in_the_action(connected: Connected, line: str) -> None:
    task = TinyTask()
    _, _, (env,) = connected(num_envs=1)
    obs = ",".join(f"{x:.2f}" for x in task.reset())
    assert env.ask(line).startswith(f"OBS={obs};REW=")


# -- answers


def test_single_has_one_env_socket(connected: Connected) -> None:
    task = TinyTask()
    _, _, (env,) = connected(env_type="SINGLE")
    assert env.ask("ACT=RESET") == spelled(task.reset(), task.reward, 0)
    obs, reward, done = task.step([0.5, -1.0])
    assert env.ask("ACT=0.5,-1;ENV=7") == spelled(obs, reward, done)  # SINGLE reads no ENV


SPELLINGS = pytest.mark.parametrize(
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


@SPELLINGS
@pytest.mark.parametrize("env_type", ["MULTI", "SINGLE"])
def test_the_spellings_of_an_observation(
    begun: Begun, form: ObsFormat, decimals: int, spelling: str, env_type: str
) -> None:
    env, task = begun(env_type=env_type, obs_format=form, decimals=decimals)
    obs, reward, done = task.step([0.3, -0.7])
    tag = ";ENV=0" if env_type == "MULTI" else ""
    assert env.ask("ACT=0.3,-0.7") == f"OBS={spelling.format(*obs)}REW={reward:.2f};DONE={int(done)}{tag}"


def test_done_in_the_answer_to_a_reset_means_nothing(connected: Connected) -> None:
    _, _, envs = connected(num_envs=2)
    flags = {env.ask("ACT=RESET").split(";DONE=")[1][0] for env in envs}
    assert flags == {"0", "1"}


def test_episodes_equal_the_task_in_process(connected: Connected) -> None:
    _, _, envs = connected(num_envs=2, episode_length=3)
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


@SPELLINGS
def test_the_spellings_of_rlbase(
    ue_rl_plugin_stand_in: Make, dial: Dial, form: ObsFormat, decimals: int, spelling: str
) -> None:
    client = dial(ue_rl_plugin_stand_in(env_type="RLBASE", obs_format=form, decimals=decimals))
    task = TinyTask(decimals=decimals)
    assert client.line() == "CONFIG:OBS=4;ACT=2;ENV_TYPE=RLBASE;"
    assert client.line() == spelling.format(0, 0, 0, 0) + "-0.00;1"  # it speaks first
    obs = spelling.format(*task.reset())
    assert client.ask("RESET").startswith(obs)
    obs, reward, done = task.step([0.3, -0.7])
    assert client.ask("0.3,-0.7") == f"{spelling.format(*obs)}{reward:.2f};{int(done)}"
