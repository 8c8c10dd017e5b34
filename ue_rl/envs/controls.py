"""EngineControls: what every env class offers beside the steps: parameters, time scale, pause, pictures, goal rewards.

Each method is a round trip of its own, between two steps. What the engine does not announce is refused by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.spaces import observation_tree
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.calls.parameters import Randomizer, Ranges, randomize
from ue_rl.protocol.spaces.forms.base import Arrays, unchanged
from ue_rl.protocol.spaces.tree import Branch, Leaf
from ue_rl.protocol.spec import EnvSpec, Parameter
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import CommandFailed, ConfigurationError, UnsupportedByEngine

# (achieved goals, desired goals, infos) -> rewards, as HerReplayBuffer calls it
GoalReward = Callable[[Any, Any, Any], Any]


class _NoPickle(ConfigurationError, TypeError):
    """What pickle raises a TypeError for."""


class EngineControls:
    """For a class that has a connected `transport`."""

    transport: Transport
    _told_of_pictures = False

    def list_params(self) -> dict[str, Parameter]:
        """Name -> parameter with its value now (of env 0) and its range; {} where the game has none."""
        return EngineCalls(self.transport).list_parameters()

    def get_params(self, names: Iterable[str] | None = None, env_id: int | None = None) -> dict[str, float]:
        """The values now; see EngineCalls.get_parameters for arguments and errors."""
        return EngineCalls(self.transport).get_parameters(names, env_id)

    def set_params(self, values: Mapping[str, float], env_id: int | None = None) -> dict[str, float]:
        """Sets them at once, in all envs or in one; see EngineCalls.set_parameters for what comes back and errors."""
        return EngineCalls(self.transport).set_parameters(values, env_id)

    def randomize(self, ranges: Ranges | None, seed: int | None = None) -> Randomizer | None:
        """Draws parameters anew for each episode; see ue_rl.protocol.calls.parameters."""
        return randomize(self.transport, ranges, seed)

    def set_time_scale(self, scale: float) -> None:
        """Runs the game at `scale` times real time; see EngineCalls.set_time_scale for errors."""
        EngineCalls(self.transport).set_time_scale(scale)

    def pause(self) -> None:
        """Stops the game between two steps; see EngineCalls.pause for errors."""
        EngineCalls(self.transport).pause()

    def resume(self) -> None:
        """Lets the game go on; see EngineCalls.resume for errors."""
        EngineCalls(self.transport).resume()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused: neither a copy nor another process can have the connection."""
        raise not_pickled(self)

    @property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.transport.spec.parameters)

    def _picture(self, env_id: int) -> NDArray[np.uint8] | None:
        """None where the engine has no picture of this env now: a film goes on without it, and so does learning."""
        try:
            return EngineCalls(self.transport).render(env_id)
        except CommandFailed as error:
            if not self._told_of_pictures:
                self._told_of_pictures = True
                warnings.warn(f"env {env_id} has no picture: {error} (said once)", stacklevel=3)
            return None


def refuse_agents(spec: EnvSpec, cure: str = "use ue_rl.UnrealParallelEnv") -> None:
    """Raises ConfigurationError where the envs hold agents."""
    if spec.groups:
        what = "the envs of this engine hold agents"
        names = ", ".join(spec.agent_names)
        raise ConfigurationError(what, field="AGENTS", got=names, cure=cure)


def not_pickled(env: object) -> ConfigurationError:
    """The error for an env that is copied, pickled or sent to another process."""
    return _NoPickle(
        "a connection to an engine can be neither copied nor pickled",
        field=type(env).__name__,
        cure="connect in the process that uses it: pass the address or a function that connects, not the env",
    )


def render_modes(spec: EnvSpec) -> list[str]:
    """Gymnasium's `metadata["render_modes"]`."""
    return ["rgb_array"] if "RENDER" in spec.features else []


def render_mode_of(spec: EnvSpec, render_mode: str | None) -> str | None:
    """As `check_render_mode`; None becomes what this engine can do."""
    return check_render_mode(spec, render_mode or next(iter(render_modes(spec)), None))


def check_render_mode(spec: EnvSpec, render_mode: str | None) -> str | None:
    """`render_mode`, where this engine can do it.

    Raises:
        ConfigurationError: there is no such mode. UnsupportedByEngine: the engine sends no pictures.
    """
    if render_mode not in (None, "rgb_array"):
        raise ConfigurationError(
            "an engine draws its own window", field="render_mode", expected="None or 'rgb_array'", got=render_mode
        )
    if render_mode is not None and "RENDER" not in spec.features:
        raise UnsupportedByEngine(
            "this engine sends no pictures",
            field="render_mode",
            expected="FEATURES=RENDER in the handshake",
            got=sorted(spec.features) or "no FEATURES",
            cure="leave render_mode out, or teach the engine to answer RENDER (docs/protocol.md, section 8)",
        )
    return render_mode


def goal_reward(transport: Transport, given: GoalReward | None = None, zero_based: bool = False) -> GoalReward | None:
    """The function that hindsight relabelling calls: the user's own, or the engine's; None where neither has one."""
    spec = transport.spec
    if given is not None or "GOAL_REWARD" not in spec.features:
        return given
    tree = observation_tree(spec)
    goal = None
    if isinstance(tree, Branch):
        goal = dict(tree.parts).get("achieved_goal")
    if not isinstance(goal, Leaf):
        return None  # nothing to relabel: these are not the observations of a goal task
    seen = goal
    if zero_based:
        seen = goal.form.trained(goal)
    as_sent: Arrays = unchanged
    if seen != goal:
        as_sent = goal.form.from_trained(goal, np)

    def compute_reward(achieved: Any, desired: Any, infos: Any) -> Any:
        """The engine's rewards, float32 [n], of goals [n, ...]; of one pair a float."""
        single = np.ndim(achieved) <= len(seen.shape)
        flat = [np.asarray(goals, np.float32).reshape(-1, seen.size) for goals in (achieved, desired)]
        rows = [as_sent(goals).astype(np.float32, copy=False) for goals in flat]
        rewards = EngineCalls(transport).compute_reward(*rows)
        if single:
            return float(rewards[0])
        return rewards

    return compute_reward
