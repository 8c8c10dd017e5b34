"""Pool: past policies of a run, to play against, with their Elo ratings; a folder that a resumed run reads again.

opponents/000000020000.zip   a policy after 20 000 env-steps, as SB3's policy.save writes it
opponents/000000020000.pkl   beside it the statistics of VecNormalize, where there are any
opponents/pool.json          {"elo": the learner's, "policies": [{"steps": .., "elo": .., "normalized": ..}, ..]},
                             oldest first
"""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ue_rl.envs.agents.players import NormalizedPolicy
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError, UntrustedFile
from ue_rl.system.trust.files import load_pickle, load_policy

K = 16.0  # how far one game moves a rating, at most


@dataclass
class Past:
    """A policy of the pool: after how many env-steps it was saved, its rating now, and whether it has statistics."""

    steps: int
    elo: float
    normalized: bool = False  # pools of before did not say it

    @property
    def name(self) -> str:
        """Of its files, and of the opponent."""
        return f"{self.steps:012}"


class Pool:
    """See the module's docstring.

    Args:
        folder: made where it is not there; one that is there is read.
        initial_elo: the learner's rating in a new pool.

    Attributes:
        elo: the learner's rating. policies: oldest first.

    Raises:
        ConfigurationError: pool.json cannot be read.
    """

    def __init__(self, folder: Path, initial_elo: float) -> None:
        self.folder = folder
        self.elo = float(initial_elo)
        self.policies: list[Past] = []
        self._loaded: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._index = folder / "pool.json"
        if self._index.exists():
            try:
                content = json.loads(self._index.read_text("utf-8"))
                self.elo = float(content["elo"])
                self.policies = [
                    Past(int(past["steps"]), float(past["elo"]), bool(past.get("normalized", False)))
                    for past in content["policies"]
                ]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                what = f"{self._index} cannot be read"
                cure = "delete the folder to begin a new pool"
                raise ConfigurationError(what, field="self_play", got=str(error), cure=cure) from error

    def add(self, steps: int, model: Any) -> None:
        """Saves the model's policy, with the learner's rating.

        Args:
            model: an SB3 model; the statistics of its VecNormalize are saved with it.
        """
        if any(past.steps == steps for past in self.policies):
            return
        statistics = model.get_vec_normalize_env()
        past = Past(steps, self.elo, statistics is not None)
        write_whole(self.folder / f"{past.name}.zip", lambda half: model.policy.save(str(half)))
        if statistics is not None:
            write_whole(self.folder / f"{past.name}.pkl", lambda half: half.write_bytes(pickle.dumps(statistics)))
        self.policies.append(past)
        self.save()

    def policy(self, past: Past, kind: Any) -> Any:
        """The policy of the pool, with `predict` for raw observations; kept loaded.

        Args:
            kind: its class, such as type(model.policy).

        Raises:
            ConfigurationError: its file, or that of its statistics, is missing or cannot be read.
        """
        if past.name not in self._loaded:
            path = self.folder / f"{past.name}.zip"
            beside = path.with_suffix(".pkl")
            if past.normalized and not beside.exists():
                raise ConfigurationError(
                    f"{beside} is missing: the statistics of VecNormalize that this opponent has learnt with",
                    field="self_play",
                    cure="put it back, or delete the folder to begin a new pool",
                )
            try:
                policy = load_policy(kind, path)
                policy.set_training_mode(False)
                if beside.exists():
                    policy = NormalizedPolicy(policy, load_pickle(beside))
            except UntrustedFile:
                raise
            except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
                what = f"{path} cannot be read as a policy"
                cure = "delete the folder to begin a new pool"
                raise ConfigurationError(what, field="self_play", got=str(error), cure=cure) from error
            self._loaded[past.name] = policy
        return self._loaded[past.name]

    def keep_loaded(self, names: set[str]) -> None:
        """Forgets the loaded policies but these."""
        self._loaded = {name: policy for name, policy in self._loaded.items() if name in names}

    def rate(self, past: Past, result: float) -> None:
        """Moves both ratings by one game.

        Args:
            result: of the learner: 1 won, 0.5 drawn, 0 lost.
        """
        change = K * (result - expected_result(self.elo, past.elo))
        self.elo += change
        past.elo -= change

    def save(self) -> None:
        """Writes pool.json."""
        text = json.dumps({"elo": self.elo, "policies": [asdict(past) for past in self.policies]}, indent=1)
        write_whole(self._index, lambda half: half.write_text(text, "utf-8"))


def expected_result(elo: float, other: float) -> float:
    """What a player with rating `elo` gets on average of a game against `other`, by Elo's formula."""
    return float(1 / (1 + 10 ** ((other - elo) / 400)))
