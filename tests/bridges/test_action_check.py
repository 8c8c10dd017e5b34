"""Which of a trainer's numbers are judged as choices."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ue_rl.bridges.action_check import ActionCheck
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, box
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system.errors import MalformedMessage, ModelOutputError


def test_only_the_choices_of_envs_that_are_asked_for_a_step_are_judged() -> None:
    """The rows of the others hold what some earlier request has left there."""
    check = ActionCheck(EnvSpec(1, 1, num_envs=3, action=ActionSpec.discrete(3)))
    inbox = ActionBatch(3, 1)
    inbox.actions[:, 0] = 2, 0.5, 7
    inbox.command[:] = inbox.STEP, inbox.NOTHING, inbox.RESET
    check.of_trainer(inbox)
    inbox.command[1] = inbox.STEP
    with pytest.raises(MalformedMessage, match="choice") as caught:
        check.of_trainer(inbox)
    assert caught.value.env_id == 1


HYBRID = Branch(
    (
        ("move", box((2,), -1, 1)),
        ("weapon", Leaf(LeafKind.DISCRETE, counts=(3,), starts=(-1,))),
        ("doors", Leaf(LeafKind.MULTI_BINARY, (2,))),
    )
)


def asked(spec: EnvSpec, *rows: list[float]) -> ActionBatch:
    inbox = ActionBatch.of(spec)
    for i, row in enumerate(rows):
        inbox.actions[i, : len(row)] = row
    inbox.command[:] = inbox.STEP
    return inbox


@pytest.mark.parametrize(
    ("action", "good", "bad", "expected"),
    [
        (ActionSpec.of(Leaf(LeafKind.DISCRETE, counts=(3,), starts=(-1,))), [[-1], [1]], [[2], [-2], [0.5]], "-1 to 1"),
        (
            ActionSpec.of(Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(2, 2), starts=(5, 0))),
            [[5, 0], [6, 1]], [[0, 0], [5, 2]], "from 5 to 6 and an integer from 0 to 1",
        ),
        (ActionSpec.of(HYBRID), [[0.3, 9, -1, 0, 1]], [[0.3, 0, 2, 0, 1], [0, 0, 0, 0, 0.5]], "a number and a number"),
    ],
    ids=["discrete", "multi-discrete", "hybrid"],
)  # fmt: skip
def test_choices_may_start_anywhere_and_stand_beside_numbers(
    action: ActionSpec, good: list[list[float]], bad: list[list[float]], expected: str
) -> None:
    spec = EnvSpec(1, action.size, num_envs=2, action=action)
    check = ActionCheck(spec)
    assert check.has_choices
    for row in good:
        check.of_trainer(asked(spec, good[0], row))
        check.of_model(np.array([row, row]), range(2))
    for row in bad:
        with pytest.raises(MalformedMessage, match=expected) as caught:
            check.of_trainer(asked(spec, good[0], row))
        assert caught.value.env_id == 1
        with pytest.raises(ModelOutputError, match=expected) as refused:
            check.of_model(np.array([good[0], row]), [0, 1])
        assert refused.value.env_id == 1


def agents() -> EnvSpec:
    striker = EnvSpec(2, 2, action=ActionSpec.multi_discrete((2, 3)))
    goalie = EnvSpec(2, 1, action=ActionSpec.discrete(4))
    drone = EnvSpec(2, 2)
    groups = AgentGroup("striker", 1, striker), AgentGroup("goalie", 1, goalie), AgentGroup("drone", 1, drone)
    return EnvSpec(2, 2, num_envs=2, groups=groups, features=frozenset({"MASK"}))


def test_an_agents_action_is_judged_by_its_own_group() -> None:
    spec = agents()
    check = ActionCheck(spec)
    fine = [[1, 2], [3, 77], [0.5, -0.5]]  # of the second one number is the action, the rest means nothing
    check.of_trainer(asked(spec, *fine, *fine))
    with pytest.raises(MalformedMessage, match="from 0 to 3") as caught:
        check.of_trainer(asked(spec, *fine, [1, 2], [4, 0], [0, 0]))
    assert caught.value.env_id == 1
    assert check.of_model(np.array(fine[1:]), [4, 5]).tolist() == fine[1:]
    with pytest.raises(ModelOutputError, match="from 0 to 1 and"):
        check.of_model(np.array(fine[1:]), [3, 5])


def test_what_a_mask_does_not_allow_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    spec = agents()
    check, states = ActionCheck(spec), StepBuffers.of(spec)
    fine = [[1, 2], [3, 0], [0.5, -0.5]]
    with caplog.at_level(logging.WARNING):
        check.of_trainer(asked(spec, *fine, *fine), states)
        assert (check.illegal, caplog.records) == (0, [])
        states.masks[0] = 0, 1, 1, 1, 0  # of the striker's second number the choice 2 is none now
        states.masks[4, :4] = 1, 1, 1, 0
        check.of_trainer(asked(spec, *fine, *fine), states)
        check.of_trainer(asked(spec, [1, 1], *fine[1:], *fine), states)
    assert check.illegal == 3
    assert len(caplog.records) == 1
    assert "env 0: the action [1.0, 2.0] is not legal" in caplog.text
    inbox = asked(spec, *fine, *fine)
    inbox.command[[0, 4]] = inbox.NOTHING, inbox.RESET  # what stands there is of an earlier request
    check.of_trainer(inbox, states)
    assert check.illegal == 3


def test_masks_of_choices_that_start_elsewhere() -> None:
    action = ActionSpec.of(HYBRID)
    spec = EnvSpec(1, 5, action=action, features=frozenset({"MASK"}))
    check, states = ActionCheck(spec), StepBuffers.of(spec)
    states.masks[0] = 0, 1, 1, 1, 1, 1, 0
    check.of_trainer(asked(spec, [0.5, 0.5, 0, 1, 0]), states)
    assert check.illegal == 0
    check.of_trainer(asked(spec, [0.5, 0.5, -1, 1, 0]), states)
    check.of_trainer(asked(spec, [0.5, 0.5, 0, 1, 1]), states)
    assert check.illegal == 2


def test_an_action_beyond_float32_is_refused_without_a_warning_of_numpys(recwarn: pytest.WarningsRecorder) -> None:
    """Who asks is told; the server's log is no place for it."""
    check = ActionCheck(EnvSpec(1, 1, num_envs=1))
    with pytest.raises(ModelOutputError, match="not a finite number"):
        check.of_model(np.array([[1e39]]), [0])
    assert not recwarn.list
