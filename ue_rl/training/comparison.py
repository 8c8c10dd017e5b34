"""What a resumed run may do otherwise than before: each option is applied and said, or refused by name; never silent.

See docs/saving.md, "What may change on `--resume`".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ue_rl.protocol.spaces.names import first_moved
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake, encode_handshake
from ue_rl.system.errors import ConfigurationError, HandshakeError, nearest
from ue_rl.training.algorithms import OFF_POLICY
from ue_rl.training.config import resolve
from ue_rl.training.directory import read_handshake
from ue_rl.training.found import handshake_near
from ue_rl.training.hyperparameters import applied, loadable, tuned_for
from ue_rl.training.options import DEFAULT_ENV, ROWS, TrainOptions, plain
from ue_rl.training.rows import APPLIED, NEW_RUN, UNSAID

_SPACES = {
    "obs_size": "OBS", "act_size": "ACT", "obs_space": "OBS_SPACE", "action": "ACT_SPACE", "obs_low": "OBS_SPACE",
    "obs_high": "OBS_SPACE", "image": "IMAGE", "groups": "AGENTS",
}  # fmt: skip


class ResumePlan(NamedTuple):
    """What goes on how.

    Attributes:
        options: what the run does from here on; what its config.yaml is to say.
        said: a sentence for each thing that is otherwise than before.
        load: arguments of the algorithm's load(): the hyperparameters that apply to a model that has learnt already.
    """

    options: TrainOptions
    said: list[str]
    load: dict[str, Any]


def compare(saved: Mapping[str, Any], options: TrainOptions, run: Path) -> ResumePlan:
    """The config that the run in the folder `run` was saved with, and the options that it is resumed with.

    Raises:
        ConfigurationError: names the option that cannot change, with what can be done instead.
    """
    before = resolve({}, None, base=saved)
    if before.backend == "sb3":
        before.learner = saved.get("learner", "torch")  # as runs learnt before there was the option
        if options.learner == "auto":
            options = replace(options, learner=before.learner)  # what was chosen for a run stays
    said = []
    for name, row in ROWS.items():
        was = getattr(before, name)
        now = getattr(options, name)
        if row.resume == UNSAID or plain(was) == plain(now):
            continue
        if name == "env":
            if not (before.embedded and options.embedded):  # of another kind: `url` or `engine` says it
                continue
            was = was or DEFAULT_ENV
            now = now or DEFAULT_ENV
            if was == now:
                continue
        if row.resume != APPLIED:
            new_run = row.resume == NEW_RUN and before.backend != "sb3"
            if new_run:
                cure = "leave it out, or begin a new run"
            else:
                cure = row.resume.format(before=was, run=run)
            raise _cannot_change(name, was, now, cure)
        said.append(f"{name}: {_shown(was)} before, {_shown(now)} now")
    if before.embedded != options.embedded:  # the defaults of a task that is hosted here are the run's all the same
        options = replace(options, hyperparameters={**tuned_for(before, resolved=False), **options.hyperparameters})
    said += _hyperparameters(before, options, run)
    return ResumePlan(options, said, loadable(options))


def check_unfinished(options: TrainOptions, learnt: int) -> None:
    """Raises ConfigurationError where there is nothing left to learn after `learnt` env-steps."""
    if learnt >= options.timesteps:
        error = ConfigurationError(
            f"the run has reached its timesteps already: it has learnt {learnt:,}",
            field="timesteps",
            cure=f"go on with --resume --timesteps {2 * learnt}, or any more than it has, or begin a new run",
        )
        error.fault = None  # nobody has done anything wrong
        raise error


def check_spaces(spec: EnvSpec, handshake: Path) -> tuple[EnvSpec, EnvSpec] | None:
    """The engine that a run is resumed with against the one that it was saved with.

    Args:
        handshake: the run's handshake.txt. Without one nothing is compared here: who learns refuses what does not fit.

    Returns:
        the specs before and now, as the handshake has them; None without a handshake.

    Raises:
        ConfigurationError: other observations or actions, by the part of the handshake that differs; the same ones in
            another order, as far as they have names; or no file.
    """
    try:
        before = read_handshake(handshake)
    except HandshakeError:
        before = None
    if before is None:
        return None
    now = decode_handshake(encode_handshake(replace(spec, shm=None)))
    what = "the engine is not the one that the run was trained in: its observations or actions differ"
    _check_same(before, now, what, "connect to the game that the run was begun with, or begin a new run")
    _check_order(before, now)
    return before, now


def check_evaluated(learnt: EnvSpec, played: EnvSpec) -> None:
    """The engine for evaluations against the one that the policy learns in.

    Raises:
        ConfigurationError: other observations or actions, by the part of the handshake that differs; the same ones in
            another order, as far as they have names.
    """
    what = "the engine for evaluations is another game: its observations or actions differ"
    cure = "give --eval-url the game that learns, on another port; or leave it out where --engine or --env starts one"
    _check_same(replace(learnt, shm=None), replace(played, shm=None), what, cure)
    _check_order(learnt, played)


def _check_same(before: EnvSpec, now: EnvSpec, what: str, cure: str) -> None:
    for name, key in _SPACES.items():
        if getattr(before, name) != getattr(now, name):
            raise ConfigurationError(what, field=key, expected=_said(before, key), got=_said(now, key), cure=cure)


def check_order(model: Path, spec: EnvSpec) -> None:
    """As check_spaces, of the order of named numbers alone; for a model that need not belong to a run."""
    before = None
    with suppress(HandshakeError, ConfigurationError):  # a model may be played without one
        before = handshake_near(model)
    if before is not None:
        _check_order(before, spec)


def _check_order(before: EnvSpec, now: EnvSpec) -> None:
    found = first_moved(before.number_names(by_name=True), now.number_names(by_name=True))
    if found is not None:
        what = "the engine's numbers stand in another order than when the model was trained"
        cure = "let the game have them in that order, or train anew"
        raise ConfigurationError(what, field=found[0], expected=found[1], got=found[2], cure=cure)


def _said(spec: EnvSpec, key: str) -> str:
    """What the handshake of `spec` says of `key`."""
    fields = encode_handshake(spec).decode("ascii").strip().removeprefix("CONFIG:").split(";")
    said = {name: value for name, _, value in (field.partition("=") for field in fields)}
    return said.get(key, "nothing")


def check_engine(options: TrainOptions, spec: EnvSpec, handshake: Path) -> list[str]:
    """As check_spaces, for SB3; sentences of what differs.

    Raises:
        ConfigurationError: other spaces; or another number of envs where the algorithm has a replay buffer, whose
            columns are the envs.
    """
    specs = check_spaces(spec, handshake)
    if specs is None or specs[0].num_envs == specs[1].num_envs:
        return []
    before, now = specs
    if options.algo in OFF_POLICY:
        raise ConfigurationError(
            "the replay buffer has a column for each env",
            field="num_envs",
            expected=before.num_envs,
            got=now.num_envs,
            cure=f"run {before.num_envs} envs in all, or begin a new run with these weights: "
            f"--init-from {handshake.parent}",
        )
    return [f"envs in all: {before.num_envs} before, {now.num_envs} now: a rollout has as many times n_steps env-steps"]


def _hyperparameters(before: TrainOptions, options: TrainOptions, run: Path) -> list[str]:
    was = tuned_for(before, resolved=False)
    now = tuned_for(options, resolved=False)
    may_change = applied(options)
    said = []
    for name, value in now.items():
        if name in was and plain(was[name]) == plain(value):
            continue
        old = was.get(name, "the default")
        if name not in may_change or (name == "gamma" and options.algo in OFF_POLICY and now.get("n_steps", 1) != 1):
            cure = "leave it out, or begin a new run"
            if options.backend == "sb3":
                cure += f"; --init-from {run} gives it these weights where they fit"
            known = None
            if name not in was:
                known = nearest(name, may_change)
            advice = known
            if not advice:
                advice = cure
            raise _cannot_change(f"hyperparameters.{name}", old, value, advice)
        said.append(f"{name}: {_shown(old)} before, {_shown(value)} now")
    return said


def _cannot_change(name: str, was: Any, now: Any, cure: str) -> ConfigurationError:
    what = "a run that is resumed cannot change it"
    return ConfigurationError(what, field=name, expected=_shown(was), got=_shown(now), cure=cure)


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    return str(value)
