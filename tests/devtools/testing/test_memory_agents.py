"""MemoryTransport with agents that come and go, masks, parameters and mixed requests: through the codec and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import AgentGroup, EnvSpec, Parameter
from ue_rl.system.errors import ConfigurationError, MalformedMessage

SPEC = EnvSpec(
    3, 2, num_envs=3, features=frozenset({"MASK", "SEED"}), parameters=(Parameter("gravity", 9.8),),
    groups=(
        AgentGroup("runner", 2, EnvSpec(2, 2)),
        AgentGroup("guard", 1, EnvSpec(3, 1, action=ActionSpec.discrete(4))),
    ),
)  # fmt: skip


class Arena:
    """Runner 0 is always there and ends after four steps, runner 1 comes at every third step and ends at the next.

    The guard is there at the start of even envs; its mask changes with every step. `forgets`: runner 0's row is left
    out of env 1's second answer.
    """

    def __init__(self, forgets: bool = False) -> None:
        self.inbox, self.outbox = ActionBatch.of(SPEC), StepBuffers.of(SPEC)
        self.answered = np.zeros(SPEC.num_rows, np.uint8)
        self.steps = [0] * SPEC.num_envs
        self.asked: list[list[int]] = []
        self.given: list[Any] = []
        self.forgets = forgets

    @property
    def spec(self) -> EnvSpec:
        return SPEC

    def update_rl(self, delta: float, /) -> None:
        commands = self.inbox.command.reshape(-1, 3)
        self.asked.append(commands.ravel().tolist())
        self.given += [(row, self.inbox.seeds[row], dict(values)) for row, values in self.inbox.parameters.items()]
        for env in np.flatnonzero(commands.any(axis=1)).tolist():
            reset = commands[env, 0] == ActionBatch.RESET
            step = self.steps[env] = 0 if reset else self.steps[env] + 1
            runner, late, guard = env * 3, env * 3 + 1, env * 3 + 2
            if not (self.forgets and env == 1 and step == 2):
                self._answer(runner, step, done=step == 4)
            if step and step % 3 == 0:
                self._answer(late, step, done=True)  # means nothing: it has just come
            elif step % 3 == 1 and commands[env, 1] == ActionBatch.STEP:
                self._answer(late, step, done=True)
            if env % 2 == 0 and (reset or commands[env, 2] == ActionBatch.STEP):
                self._answer(guard, step, done=step == 4)
                self.outbox.masks[guard] = [step % 2, 1, 0, 1]
        self.inbox.clear()

    def _answer(self, row: int, step: int, done: bool) -> None:
        self.answered[row] = 1
        acted = self.inbox.actions[row, 0] if self.inbox.command[row] == ActionBatch.STEP else 0
        self.outbox.obs[row, : 3 if row % 3 == 2 else 2] = row + step + acted
        self.outbox.rewards[row] = step
        self.outbox.dones[row] = done
        self.outbox.truncated[row] = done and row % 2
        self.outbox.infos[row] = {"row": row}


def seen(transport: MemoryTransport) -> list[Any]:
    buffers = transport.receive()
    there = buffers.present != 0
    return [
        buffers.present.tolist(), buffers.obs[there].tolist(), buffers.rewards[there].tolist(),
        buffers.dones[there].tolist(), buffers.truncated[there].tolist(), buffers.masks[there].tolist(),
        dict(buffers.infos), buffers.pending.tolist(),
    ]  # fmt: skip


def played(through_codec: bool, compiled: bool) -> tuple[list[Any], Arena]:
    arena = Arena()
    transport = MemoryTransport(arena, through_codec=through_codec, compiled=compiled)
    transport.draw_parameters = lambda env: {"gravity": env + 0.5} if env else None
    transport.connect()
    transport.reset(None, [7, None, 9])
    story = [seen(transport)]
    actions = np.arange(SPEC.num_rows * 2, dtype=np.float32).reshape(-1, 2)
    for step in range(9):
        transport.send_actions(
            actions + step, [1] if step == 2 else [0, 2] if step == 4 else [1] if step == 7 else None
        )
        story.append(seen(transport))
    return story, arena


@pytest.mark.parametrize("compiled", [True, False])
def test_with_the_codec_and_without_the_same_comes(compiled: bool) -> None:
    (story, arena), (copied, other) = played(True, compiled), played(False, compiled)
    assert story == copied
    assert arena.asked == other.asked
    assert (
        arena.given
        == other.given
        == [
            (3, -1, {"gravity": 1.5}),
            (6, 9, {"gravity": 2.5}),
            (3, -1, {"gravity": 1.5}),
            (6, -1, {"gravity": 2.5}),
            (3, -1, {"gravity": 1.5}),
        ]
    )
    assert story[0][0] == [1, 0, 1, 1, 0, 0, 1, 0, 1]
    assert arena.asked[3] == [1, 0, 1, 2, 2, 2, 1, 0, 1]  # a step and a reset in one request
    assert story[3][0] == [1, 1, 1, 1, 0, 0, 1, 1, 1]  # runner 1 of the envs in their third step
    assert story[3][3] == [0] * 7
    assert arena.asked[4] == [1, 1, 1, 1, 0, 0, 1, 1, 1]
    assert 1 in story[4][3]


def test_an_env_in_which_nobody_can_act_must_be_reset() -> None:
    transport = MemoryTransport(Arena())
    transport.connect()
    transport.reset()
    seen(transport)
    actions = np.zeros((SPEC.num_rows, 2), np.float32)
    for _ in range(4):
        transport.send_actions(actions)
        seen(transport)
    with pytest.raises(ConfigurationError, match="nobody in this env"):
        transport.send_actions(actions)
    transport.send_actions(actions, [0, 1, 2])
    assert seen(transport)[0] == [1, 0, 1, 1, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("through_codec", [True, False])
def test_an_agent_that_acted_and_is_missing_is_named(through_codec: bool) -> None:
    arena = Arena(forgets=True)
    transport = MemoryTransport(arena, through_codec=through_codec)
    transport.connect()
    transport.reset()
    seen(transport)
    actions = np.zeros((SPEC.num_rows, 2), np.float32)
    transport.send_actions(actions)
    seen(transport)
    transport.send_actions(actions)
    arena.outbox.obs[4] = 0
    arena.answered[4] = 1  # somebody of env 1 answers
    with pytest.raises(MalformedMessage) as caught:
        transport.receive()
    assert (caught.value.env_id, caught.value.field, "runner_0" in str(caught.value)) == (1, "AGENT", True)
