"""Which of a trainer's numbers are judged as choices."""

from __future__ import annotations

import pytest

from ue_rl.bridges.action_check import ActionCheck
from ue_rl.buffers import ActionBatch
from ue_rl.errors import MalformedMessage
from ue_rl.spec import ActionSpec, EnvSpec


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
