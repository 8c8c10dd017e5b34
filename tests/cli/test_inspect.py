"""What `ue-rl inspect` says of an engine whose messages are right, and with which nobody can learn all the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_line import ok, refused, run
from ue_rl.bridges import GymnasiumBridge, VectorBridge, run_in_thread
from ue_rl.cli.inspect import StepStatistics, notes
from ue_rl.devtools.testing import FaultKind, FaultyEngine, PluginStandIn, Script
from ue_rl.devtools.testing.engines.faulty import Fault
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import decode_handshake
from ue_rl.system import errors

SPEC = EnvSpec(2, 1, num_envs=3, obs_low=(-1.0, -1.0), obs_high=(1.0, 1.0))


class Game(VectorBridge):
    """Observations [a sine of the step and the env, `second`], episodes of `length` steps."""

    def __init__(self, second: float | None = None, same: bool = False, reward: float = 1.0, length: int = 20) -> None:
        super().__init__(SPEC)
        self.second, self.same, self.reward, self.length = second, same, reward, length
        self.count = np.zeros(3, int)

    def _see(self, env_ids: Any) -> None:
        offset = 0 if self.same else env_ids
        first = np.sin(self.count[env_ids] + offset)
        self.outbox.obs[env_ids, 0] = first
        self.outbox.obs[env_ids, 1] = -first if self.second is None else self.second

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.count[env_ids] = 0
        self._see(np.asarray(env_ids))

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.count[env_ids] += 1
        self._see(np.asarray(env_ids))
        self.outbox.rewards[env_ids] = self.reward
        self.outbox.dones[env_ids] = self.count[env_ids] >= self.length


def inspect(*words: str) -> str:
    return " ".join(ok("inspect", *words).split())


def without_speed(said: str) -> str:
    """Without the note on answers as slow as a game's tick: where other processes keep all cores, they also are."""
    return re.sub(r"note \d+ answers per second .*?\(t\.MaxFPS 0\)", "", said)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({}, None),
        ({"second": 0.5}, "1 of 2 numbers of the observation never changed in 60 steps of each env: number 1 (0.5)"),
        ({"second": 3.0}, "observations outside the space that the engine announced: number 1 was 3, not in -1 to 1"),
        ({"reward": 0.0}, "every reward was 0 in 60 steps of each env"),
        ({"length": 10**9}, "no episode has ended in 60 steps of each env"),
        ({"same": True}, "all envs had the same observations in 60 random steps"),
    ],
)
def test_what_learning_cannot_succeed_with(wrong: dict[str, Any], text: str | None) -> None:
    with run_in_thread(Game(**wrong)) as server:
        said = inspect("--port", str(server.port), "--steps", "60")
    if text is None:
        assert "note" not in without_speed(said)
    else:
        assert f"note {text}" in said


def test_answers_as_slow_as_a_tick_are_the_only_note_on_speed() -> None:
    (said,) = notes(SPEC, 0.01)
    assert said.startswith("100 answers per second is the game's tick, not the bridge (or all cores are busy)")
    assert without_speed(f"note {said}") == ""


def test_few_steps_say_nothing_about_what_never_happens() -> None:
    with run_in_thread(Game(length=10**9, reward=0.0)) as server:
        assert "note" not in without_speed(inspect("--port", str(server.port), "--steps", "10"))


@pytest.mark.parametrize(("carrier", "told"), [("tcp", True), ("shared memory", False)])
def test_steps_of_40_ms(carrier: str, told: bool) -> None:
    seen = StepStatistics(SPEC, carrier, 8)
    for _ in range(8):
        seen.step(StepBuffers.of(SPEC), np.ones(3), np.zeros(3, bool), 0.0412)
    assert any("as long as TCP delays an acknowledgement" in note for note in seen.notes()) == told


def test_a_healthy_engine_and_how_it_is_reached() -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as server:
        said = ok("inspect --steps 60 --port", server.port).replace("\n", "")
    for text in ("ACT_SPACE=DISCRETE(2)", "Discrete(2)", "shared channel", "p50", "p99", "env-steps/s", "SEED"):
        assert text in said, said


def test_the_deployed_plugin() -> None:
    with PluginStandIn(num_envs=2, tick_rate=60) as game:
        said = inspect("--port", str(game.port), "--steps", "10")
    assert "deployed plugin" in said
    assert "the game's tick, not the bridge" in said
    assert "2 env sockets" in said


def test_rlbase() -> None:
    with PluginStandIn(env_type="RLBASE", tick_rate=60) as game:
        said = inspect(f"127.0.0.1:{game.port}?nul-terminated=yes", "--steps", "10")
    assert "use more envs" not in said
    assert "a step takes three of the game's ticks with RLBASE" in said
    assert "use MULTI with ENV_COUNT=1" in said


def test_notes_by_what_they_need() -> None:
    rlbase = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=RLBASE;")
    assert any("(17 ms each)" in note for note in notes(rlbase, 0.05))
    assert not any("ticks" in note for note in notes(rlbase, 1e-4))
    single = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE")
    assert any("use MULTI with several envs, a fixed time step" in note for note in notes(single, 1 / 60))
    assert not any("use more envs" in note for note in notes(single, 1 / 60))
    multi = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1")
    assert any("use more envs" in note for note in notes(multi, 1 / 60))
    assert not any("--nul-terminated" in note for note in notes(multi, None))
    assert notes(decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1"), 1e-4) == []
    wide = decode_handshake(b"CONFIG:OBS=1;ACT=100;ENV_TYPE=SINGLE")
    assert any("1024" in note for note in notes(wide, None))


def test_the_line_as_it_was_sent_with_what_nobody_knows() -> None:
    text = "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;ACTSPACE=DISCRETE(2);FEATURES=SEEDS,[/X]"
    with FaultyEngine(Script(handshake=text)) as engine:
        said = ok("inspect --steps 2 --port", engine.port)
    joined = "".join(line.partition("│")[2].rpartition("│")[0].partition("│")[2].strip() for line in said.splitlines())
    assert text in joined
    assert "ACTSPACE: did you mean 'ACT_SPACE'?" in joined
    assert "SEEDS: did you mean 'SEED'?" in joined
    assert said.count("[/X]") == 3  # in the handshake, among the features, and as one that is unknown


def test_what_is_known_is_shown_where_a_step_fails() -> None:
    with FaultyEngine(Script(faults=(Fault(FaultKind.HALF_LINE, env=0, step=1),)), num_envs=2) as engine:
        result = run("inspect --steps 2 --timeout 5 --port", engine.port)
    assert result.exit_code == 1
    assert "ENV_COUNT=2" in result.output.replace("\n", "")


def test_play_refuses_an_engine_with_agents(tiny_model: Path) -> None:
    text = "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;AGENTS=fish:2"
    with FaultyEngine(Script(handshake=text)) as engine:
        said = str(refused(f"play --port {engine.port}", tiny_model, by=errors.ConfigurationError))
    assert "the envs of this engine hold agents" in said
    assert "GroupVecEnv" in said


def test_numbers_are_the_shortest_text_that_reads_back() -> None:
    with run_in_thread(Game(second=0.2)) as engine:
        assert "env 0: 0.0, 0.2 " in inspect("--port", str(engine.port), "--steps", "2")
