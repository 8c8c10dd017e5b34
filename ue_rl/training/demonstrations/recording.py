"""Episodes of a VecEnv, kept while it is stepped: by a policy, a script, or a game that acts itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.actions import as_trained
from ue_rl.protocol.spaces.walks import map_leaves
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import MalformedMessage, UnsupportedByEngine
from ue_rl.training.demonstrations.dataset import DemoEpisode, DemoRecorder
from ue_rl.training.demonstrations.trees import stacked

TAKEN = "demo_action"  # the key in the INFO of an engine with FEATURES=DEMO


class RecordingVecEnv(VecEnvWrapper):
    """`venv`, whose whole episodes are written into a dataset; as a context it closes the dataset, not the env.

    Each env gives the same share of them: the first to end would be the short ones.

    Args:
        folder: of the dataset. episodes: how many. about: of the dataset's metadata.
        taken: (action asked, info) -> the action that was taken; None where it is not known, which voids the episode.
    """

    def __init__(
        self,
        venv: VecEnv,
        folder: Path | str,
        episodes: int,
        taken: Callable[[Any, dict[str, Any]], Any] = lambda asked, info: asked,
        **about: Any,
    ) -> None:
        super().__init__(venv)
        self.recorder = DemoRecorder(folder, venv.observation_space, venv.action_space, **about)
        self._left = [(episodes + env) // venv.num_envs for env in range(venv.num_envs)]
        self._taken = taken
        self._rows: list[list[tuple[Any, Any, float]]] = [[] for _ in self._left]
        self._asked: Any = None
        self._seen: list[Any] = []

    @property
    def done(self) -> bool:
        """Are all episodes written?"""
        return not any(self._left)

    def reset(self) -> Any:
        """See VecEnv; what was under way is dropped."""
        observations = self.venv.reset()
        self._seen = self._each_env(observations)
        for rows in self._rows:
            rows.clear()
        return observations

    def step_async(self, actions: Any) -> None:
        """See VecEnv."""
        self._asked = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """See VecEnv."""
        observations, rewards, dones, infos = self.venv.step_wait()
        following = self._each_env(observations)
        for env, info in enumerate(infos):
            if not self._left[env]:
                continue
            rows = self._rows[env]
            rows.append((self._seen[env], self._taken(self._asked[env], info), float(rewards[env])))
            if not dones[env]:
                continue
            if "engine_lost" not in info and all(row[1] is not None for row in rows):
                seen, acted, earned = zip(*rows, strict=True)
                cut = bool(info.get("TimeLimit.truncated"))
                last = map_leaves(np.array, info["terminal_observation"])
                self.recorder.add(DemoEpisode(stacked([*seen, last]), stacked(list(acted)), np.array(earned), not cut))
                self._left[env] -= 1
            rows.clear()
        self._seen = following
        return observations, rewards, dones, infos

    def _each_env(self, observations: Any) -> list[Any]:
        return [map_leaves(lambda rows, env=env: np.array(rows[env]), observations) for env in range(self.num_envs)]

    def __enter__(self) -> RecordingVecEnv:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.recorder.close()


def record_played(
    env: VecEnv, folder: Path | str, episodes: int, tell: Callable[[str], object] = print, **about: Any
) -> int:
    """Records a game that acts itself; stopped before its end it keeps the whole episodes. How many they are.

    Args:
        env: a connected UnrealVecEnv whose engine has FEATURES=DEMO. tell: is told of each episode.
        episodes, about: as RecordingVecEnv takes them.

    Raises:
        UnsupportedByEngine: the engine waits for actions. MalformedMessage: a step came without the action taken.
    """
    spec = env.unwrapped.engine_spec  # type: ignore[attr-defined]
    if "DEMO" not in spec.features:
        raise UnsupportedByEngine(
            "the engine does not act itself",
            field="FEATURES",
            expected="DEMO",
            got=sorted(spec.features),
            cure="start the game in its demo mode, or let a policy play: ue-rl play MODEL --record-demos FOLDER",
        )
    space: Any = env.action_space

    def taken(_: Any, info: dict[str, Any]) -> Any:
        action = None
        if "engine_lost" not in info:
            action = action_of(spec, info)
        if action is None:
            return None
        return as_trained(action[None], space)[0]

    unheeded = np.zeros((env.num_envs, *space.shape), space.dtype)
    if isinstance(space, spaces.Box):
        unheeded = np.clip(unheeded, space.low, space.high)
    with RecordingVecEnv(env, folder, episodes, taken, **about) as recorded:
        recorded.reset()
        count = 0
        try:
            while not recorded.done:
                recorded.step(unheeded)
                if recorded.recorder.count > count:
                    count = recorded.recorder.count
                    tell(f"episode {count} of {episodes}")
        except KeyboardInterrupt:
            tell("stopped")
        return recorded.recorder.count


def action_of(spec: EnvSpec, info: Mapping[str, Any]) -> NDArray[np.float32]:
    """The action, float32 [act_size], that an engine with FEATURES=DEMO says it has taken.

    Raises:
        MalformedMessage: `info` has none, or another number of numbers.
    """
    given = info.get(TAKEN)
    try:
        action = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        action = np.zeros(0, np.float32)
    if given is None or action.shape != (spec.act_size,) or not np.all(np.isfinite(action)):
        raise MalformedMessage(
            "a game that acts itself must send the action that it took with each step",
            fault="engine",
            field=f"INFO, {TAKEN}",
            expected=f"a list of {spec.act_size} numbers",
            got=given,
        )
    return action
