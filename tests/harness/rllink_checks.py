"""What a message of episodes must be, checked over a whole session; each mistake is one sentence.

A sentence says the message, the episode, the key, what was expected and what came, and where it can be guessed, what
the client did instead: acted by the weights before the last, with another activation, on other observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.harness.rllink_episodes import Reader, Received
from ue_rl.errors import shorten
from ue_rl.rllink.messages import EPISODES_AND_GET_STATE
from ue_rl.rllink.networks import ACTIVATIONS, Network
from ue_rl.spaces.actions import ActionKind, ActionSpec

Equations = Callable[[NDArray[np.float32], NDArray[Any]], tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]
LogProbabilities = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
Policy = Callable[[NDArray[np.float32]], NDArray[Any]]
_MOST = 1000  # mistakes that are kept
_ENDED = 10_000  # ids of episodes that are over
_OPEN = 3  # messages in which an open episode may be missing
_LOGITS, _LOGP, _EQUATIONS = 1e-4, 1e-3, 1e-3


@dataclass
class _Open:
    """What is known of an episode that goes on."""

    steps: int
    total: float
    last_obs: NDArray[Any]
    message: int | None  # None: its connection is gone, and it need not go on


class SessionChecks:
    """Takes each message of episodes.

    Args:
        obs_size, action, num_logits: of the policy. dialect: "msgpack" or "json".
        logp: (logits [T, n], actions [T, ..]) -> log-probabilities [T]; None: of a DiagGaussian or of choices.
        equations: (obs [T, obs_size], actions [T, ..] as the engine gets them) -> (next obs, rewards [T], terminated
            [T]), of an env that is known; None: none of them is checked.

    Attributes:
        mistakes: one sentence each, a thousand at most. finished: (return, length) of each episode that ended.
    """

    def __init__(
        self, obs_size: int, action: ActionSpec, num_logits: int, dialect: str, equations: Equations | None = None,
        logp: LogProbabilities | None = None,
    ) -> None:  # fmt: skip
        self.mistakes: list[str] = []
        self.finished: list[tuple[float, int]] = []
        self._reader = Reader(obs_size, action, num_logits)
        self._action, self._dialect, self._equations = action, dialect, equations
        self._logp = logp or partial(log_probabilities, action)
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, None] = {}
        self._messages = self._records = 0
        self._since_state, self._uncounted = 0, False  # since a state was sent: steps; an episode had no readable ones

    def note(self, sentence: str) -> None:
        """Adds a mistake."""
        if len(self.mistakes) < _MOST:
            self.mistakes.append(sentence)

    def begin(self) -> None:
        """A client has connected: what another one left open need not go on."""
        self._since_state, self._uncounted = 0, False
        for open_ in self._open.values():
            open_.message = None
        for id_ in list(self._open)[:-_ENDED]:
            del self._open[id_]

    def take(
        self, message: dict[Any, Any], wanted: int, net: Policy, before: Policy | None = None, seq: int = 0
    ) -> int:
        """How many env-steps it has that can be used.

        Args:
            wanted: env-steps for which RLlib waits. net: the policy that was sent last, observations to logits.
            before: the one before it. seq: weights_seq_no of `net`.
        """
        self._messages += 1
        episodes = message.get("episodes")
        if not isinstance(episodes, list):
            self._say(None, "episodes", "missing", "a list of episodes", type(episodes).__name__)
            return 0
        steps = 0
        for episode in episodes:
            self._records += 1
            found, wrong = self._reader.read(episode, f"number {self._records}", self._dialect)
            name = _name(episode, self._records) if found is None else found.name
            for sentence in wrong:
                self.note(f"message {self._messages}, episode {shorten(name, 40)}: {sentence}")
            if found is None:
                self._uncounted = True
            else:
                steps += len(found.rewards)
                self._judge_order(found)
                self._judge_policy(found, net, before, seq)
                self._judge_equations(found)
        self._judge_message(message, steps, wanted, seq)
        return steps

    def _say(self, name: str | None, key: str, what: str, expected: Any, got: Any, guess: str = "") -> None:
        who = "" if name is None else f", episode {shorten(name, 40)}"
        self.note(f"message {self._messages}{who}: {key}: {what}; expected {expected}, got {got}{guess}")

    # -- the message

    def _judge_message(self, message: dict[Any, Any], steps: int, wanted: int, seq: int) -> None:
        number = message.get("weights_seq_no")
        if number is not None and (not isinstance(number, int) or number != seq):
            what = "not the number of the weights that were sent last"
            self._say(None, "weights_seq_no", what, seq, shorten(number, 30))
        said = message.get("timesteps")
        if said is not None and (not isinstance(said, int) or (said != steps and not self._uncounted)):
            self._say(None, "timesteps", "not the sum of its episodes' steps", steps, shorten(said, 30))
        self._since_state += steps
        if message.get("type") == EPISODES_AND_GET_STATE:
            if self._since_state < wanted and not self._uncounted:
                what = "too few steps: RLlib would wait for the others for ever"
                self._say(None, "episodes", what, f"{wanted} env-steps", self._since_state)
            self._since_state, self._uncounted = 0, False
        for id_, open_ in list(self._open.items()):
            if open_.message is not None and self._messages - open_.message >= _OPEN:
                del self._open[id_]
                what = f"it neither ended nor went on in the {_OPEN} messages since message {open_.message}"
                self._say(id_, "is_terminated, is_truncated", what, "one of them true in its last part", "both false")

    # -- an episode

    def _judge_order(self, found: Received) -> None:
        name, steps = found.name, len(found.rewards)
        before = None
        if found.id_ is not None:
            before = self._open.pop(found.id_, None)
            if found.id_ in self._ended:
                self._say(name, "id_", "an episode of this id has ended already", "an id of its own", "the same id")
            elif before is None and found.t_started:
                what = "no part of this episode came before"
                self._say(name, "t_started", what, "0, or the id of the part before", found.t_started)
            elif before is not None and found.t_started != before.steps:
                self._say(name, "t_started", "the part before ended elsewhere", before.steps, found.t_started)
            if before is not None and not np.array_equal(before.last_obs, found.obs[0]):
                what = "the part before ended with another observation"
                self._say(name, "observations", what, before.last_obs.tolist(), found.obs[0].tolist())
            if found.t != found.t_started + steps:
                self._say(name, "t", "it is not t_started + steps", found.t_started + steps, found.t)
        known = before or _Open(0, 0.0, found.obs[0], 0)
        length, total = known.steps + steps, known.total + float(found.rewards.sum())
        if found.terminated or found.truncated:
            self.finished.append((total, length))
            if found.id_ is not None:
                self._ended[found.id_] = None
                if len(self._ended) > _ENDED:
                    del self._ended[next(iter(self._ended))]
        elif found.id_ is not None:
            self._open[found.id_] = _Open(length, total, found.obs[-1], self._messages)

    def _judge_policy(self, found: Received, net: Policy, before: Policy | None, seq: int) -> None:
        if found.seq is not None and not np.array_equal(found.seq, np.full(found.rewards.shape, seq)):
            what = "not the number of the weights that were sent last"
            self._say(found.name, "weights_seq_no", what, seq, shorten(found.seq.tolist(), 60))
        with np.errstate(all="ignore"):
            wanted = net(found.obs[:-1])
            at = _first_apart(found.logits, wanted, _LOGITS)
            if at is not None:
                what = f"not those of the weights that were sent last, at step {at}"
                guess = _guess((what, rows) for what, rows in _others(found, net, before))
                values = found.logits[at].tolist()
                self._say(found.name, "action_dist_inputs", what, _short(wanted[at].tolist()), _short(values), guess)
                return
            right = self._logp(found.logits, found.actions)
            at = _first_apart(found.logp, right, _LOGP)
            if at is not None:
                what = f"not that of the action, at step {at}"
                guess = self._raw_guess(found)
                self._say(found.name, "action_logp", what, f"{right[at]:.6g}", f"{found.logp[at]:.6g}", guess)

    def _raw_guess(self, found: Received) -> str:
        """Are the actions those that the engine gets?"""
        if self._action.kind is not ActionKind.BOX:
            return ""
        low, high = self._action.bounds
        raw = (found.actions - low) / (high - low) * 2 - 1
        inside = (np.abs(raw) < 1).all(axis=1)
        right = self._logp(found.logits, raw)
        if inside.any() and _first_apart(found.logp[inside], right[inside], _LOGP) is None:
            return ": the actions are stretched to their bounds, an episode has them as they were drawn"
        return ""

    def _judge_equations(self, found: Received) -> None:
        if self._equations is None:
            return
        with np.errstate(all="ignore"):
            obs, rewards, over = self._equations(found.obs[:-1], for_engine(self._action, found.actions))
        pairs: list[tuple[str, NDArray[Any], NDArray[Any]]] = [
            ("observations", found.obs[1:], obs), ("rewards", found.rewards, rewards),
        ]  # fmt: skip
        for key, got, wanted in pairs:
            at = _first_apart(got, wanted, _EQUATIONS)
            if at is not None:
                what = f"not what the env's equations give, at step {at}"
                guess = _shifted(got, wanted)
                self._say(found.name, key, what, _short(wanted[at].tolist()), _short(got[at].tolist()), guess)
        ends, steps = np.flatnonzero(over), len(found.rewards)
        if (ends[0] + 1 if len(ends) else None) != (steps if found.terminated else None):
            expected = f"an end behind step {ends[0]}" if len(ends) else "false"
            got_end = f"{found.terminated} behind step {steps - 1}"
            self._say(found.name, "is_terminated", "not what the env's equations give", expected, got_end)


def _others(
    found: Received, net: Policy, before: Policy | None
) -> Iterator[tuple[str, tuple[NDArray[Any], NDArray[Any]]]]:
    """What a client may have done instead, with the rows that would have come of it and those that came."""
    obs = found.obs[:-1]
    if before is not None:
        yield "they are those of the weights before", (found.logits, before(obs))
    if isinstance(net, Network):
        for name, made in ACTIVATIONS.items():
            yield f"they are those of the activation {name}", (found.logits, replace(net, encoder_activation=made)(obs))
    if len(obs) > 1:
        yield "they fit the observations one step later", (found.logits[:-1], net(found.obs[1:-1]))
        yield "they fit the observations one step before", (found.logits[1:], net(found.obs[:-2]))


def _guess(others: Iterator[tuple[str, tuple[NDArray[Any], NDArray[Any]]]]) -> str:
    for what, (got, wanted) in others:
        if got.shape == wanted.shape and _first_apart(got, wanted, _LOGITS) is None:
            return f": {what}"
    return ""


def _shifted(got: NDArray[Any], wanted: NDArray[Any]) -> str:
    if len(got) > 1 and _first_apart(got[1:], wanted[:-1], _EQUATIONS) is None:
        return ": they fit one step later"
    if len(got) > 1 and _first_apart(got[:-1], wanted[1:], _EQUATIONS) is None:
        return ": they fit one step before"
    return ""


def _first_apart(got: NDArray[Any], wanted: NDArray[Any], tolerance: float) -> int | None:
    """The first row that differs by more, of numbers above 100 by more than float32 rounds."""
    scale = np.maximum(1.0, np.abs(wanted) / 100)
    apart = ~(np.abs(got - wanted) <= tolerance * scale)
    if not apart.any():
        return None
    return int(apart.reshape(len(apart), -1).any(axis=1).argmax())


def _short(values: Any) -> str:
    text = str([round(value, 5) for value in values] if isinstance(values, list) else round(values, 5))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _name(episode: Any, number: int) -> str:
    id_ = episode.get("id_") if isinstance(episode, dict) else None
    return id_ if isinstance(id_, str) else f"number {number}"


def for_engine(action: ActionSpec, actions: NDArray[Any]) -> NDArray[Any]:
    """Actions as RLlib's connectors give them to an env: a bounded Box stretched from -1..1, and cut."""
    if action.kind is not ActionKind.BOX:
        return actions
    low, high = action.bounds
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return actions
    stretched: NDArray[Any] = np.clip(low + (actions + 1) * (high - low) / 2, low, high)
    return stretched


def log_probabilities(action: ActionSpec, logits: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Of these actions, in doubles; written without what the client uses."""
    rows = actions.reshape(len(actions), -1)
    total = np.zeros(len(rows))
    if action.kind is ActionKind.BOX:
        half = logits.shape[1] // 2
        for n in range(half):
            deviation = np.exp(logits[:, half + n])
            total += -(((rows[:, n] - logits[:, n]) / deviation) ** 2) / 2 - np.log(deviation * math.sqrt(2 * math.pi))
        return total
    start = 0
    for n, count in enumerate(action.counts):
        part = logits[:, start : start + count]
        odds = np.exp(part - part.max(axis=1, keepdims=True))
        total += np.log(odds[np.arange(len(rows)), rows[:, n].astype(int)] / odds.sum(axis=1))
        start += count
    return total
