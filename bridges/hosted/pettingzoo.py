"""PettingZooBridge: hosts copies of any PettingZoo env as an engine with agents. Needs pettingzoo (ue_rl[agents])."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.bridges.hosted.gymnasium_envs import EnvMaker, HoldsEnvs, flat_mask
from ue_rl.bridges.multi_agent import MultiAgentBridge
from ue_rl.protocol.spaces.gymnasium import action_reader, flat_reader, tree_of
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.json_text import json_items

_NUMBERED = re.compile(r"(.+)_(0|[1-9][0-9]*)")


class PettingZooBridge(HoldsEnvs, MultiAgentBridge):
    """PettingZoo envs behind one bridge, one instance per env.

    Args:
        env: a callable that makes a ParallelEnv or an AECEnv, a list of such callables, one for each env, or the name
            of a module of PettingZoo, such as "pettingzoo.butterfly.pistonball_v6". Of an AECEnv that cannot be stepped
            in parallel all agents act in each step, and only the action of the one whose turn it is counts.
        num_envs: how many; None: one for each callable.
        groups: which agents stand in which group: name to agents, in order. None: agents `name_0` to `name_k` of the
            same spaces are the group `name`, every other one is a group of one.
        masks: send which actions are legal. None: where an observation is a Dict of `observation` and `action_mask`, as
            in PettingZoo's classic envs: the trainer then sees the former. True: also from `info["action_mask"]`.
        send_info: send the JSON-able part of each info dict (INFO).
        parameters: what a trainer may set, see GymnasiumBridge.
        make_kwargs: for the callables.

    Raises:
        ConfigurationError: the env has no `possible_agents`, a space that the wire cannot carry, groups that do not fit
            its agents, one env object for several envs, or envs with different agents or spaces.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] | Sequence[Callable[..., Any]],
        num_envs: int | None = None,
        *,
        groups: Mapping[str, Sequence[Any]] | None = None,
        masks: bool | None = None,
        send_info: bool = False,
        parameters: Mapping[str, tuple[float, float, float]] | None = None,
        **make_kwargs: Any,
    ) -> None:
        if not isinstance(env, str):
            sources = env
        else:
            sources = _maker(env)
        maker = EnvMaker(
            sources, lambda source: _parallel(source(**make_kwargs)), _spaces_of, "agents with the same spaces"
        )
        first, num_envs = self.hold(maker, num_envs, parameters)
        self._spaces = _spaces_of(first)
        if groups is None:
            groups = _found_groups(self._spaces)
        self._ids = _check_groups(groups, self._spaces)
        self._in_turns = type(first).__name__ == "turn_based_aec_to_parallel_wrapper"
        hides_masks = any(_hides_mask(observed) for observed, _ in self._spaces.values())
        taken = inspect.signature(first.reset).parameters
        self._reset_takes = {name for name in ("seed", "options") if name in taken or "kwargs" in taken}
        features = {"TRUNC", *(word.upper() for word in self._reset_takes)} | ({"INFO"} if send_info else set())
        if masks or (masks is None and hides_masks):
            features.add("MASK")
        features |= self.offer_what_envs_can()
        made = [AgentGroup(name, len(ids), self._spec_of(ids[0])) for name, ids in groups.items()]
        names = [name for group in made for name in group.agent_names]
        self._id_of = dict(zip(names, self._ids, strict=True))
        self._name_of = {agent: name for name, agent in self._id_of.items()}
        self._read = {name: action_reader(self._spaces[agent][1]) for name, agent in self._id_of.items()}
        self._flat = {
            name: flat_reader(tree_of(_seen(self._spaces[agent][0]), "OBS_SPACE"))
            for name, agent in self._id_of.items()
        }
        self._choices = {name: group.spec.action_spec.mask_size for group in made for name in group.agent_names}
        super().__init__(made, num_envs, features)

    def configure(self, spec: EnvSpec) -> None:
        """See HoldsEnvs.configure and MultiAgentBridge.configure."""
        with self.lock:
            self._observations: list[dict[Any, Any]] = [{}] * spec.num_envs
            self._results: list[tuple[dict[Any, Any], ...]] = [({}, {}, {})] * spec.num_envs
            self._infos: list[dict[Any, Any]] = [{}] * spec.num_envs
            super().configure(spec)

    # -- callbacks

    def reset_env(self, env_id: int, seed: int | None, options: dict[str, Any] | None) -> None:
        """See MultiAgentBridge."""
        given: dict[str, Any]
        if "seed" in self._reset_takes:
            given = {"seed": seed}
        else:
            given = {}
        if options is not None:
            given["options"] = options
        self._observations[env_id], self._infos[env_id] = self.envs[env_id].reset(**given)

    def step_env(self, env_id: int, actions: dict[str, NDArray[np.float32]]) -> None:
        """See MultiAgentBridge."""
        env = self.envs[env_id]
        own = {self._id_of[name]: self._read[name](action) for name, action in actions.items()}
        observations, *results, self._infos[env_id] = env.step(own)
        there = {*own, *env.agents}
        self._observations[env_id] = {agent: obs for agent, obs in observations.items() if agent in there}
        self._results[env_id] = tuple(results)

    def observe(self, env_id: int) -> dict[str, Any]:
        """See MultiAgentBridge."""
        found = {}
        with np.errstate(over="ignore"):
            for agent, obs in self._observations[env_id].items():
                name = self._name_of[agent]
                if _hides_mask(self._spaces[agent][0]):
                    seen = obs["observation"]
                else:
                    seen = obs
                found[name] = np.asarray(self._flat[name](seen), np.float32)
        return found

    def results(self, env_id: int) -> dict[str, tuple[float, bool, bool]]:
        """See MultiAgentBridge."""
        rewards, terminated, truncated = self._results[env_id]
        return {
            self._name_of[agent]: (rewards[agent], terminated[agent], truncated[agent])
            for agent in terminated
            if agent in rewards and agent in truncated and agent in self._name_of
        }

    def action_masks(self, env_id: int) -> dict[str, NDArray[np.bool_]]:
        """See MultiAgentBridge; of an agent whose turn it is not every action is legal: it does not count."""
        found = {}
        for agent, obs in self._observations[env_id].items():
            name = self._name_of[agent]
            in_obs = _hides_mask(self._spaces[agent][0])
            if in_obs:
                mask = obs["action_mask"]
            else:
                mask = self._infos[env_id].get(agent, {}).get("action_mask")
            if mask is not None and self._choices[name]:
                flags = flat_mask(mask, self._choices[name], env_id)
                if flags.any() or not self._in_turns:
                    found[name] = flags
        return found

    def infos(self, env_id: int) -> dict[str, dict[str, Any]]:
        """See MultiAgentBridge."""
        given = self._infos[env_id].items()
        present = self._observations[env_id]
        return {self._name_of[agent]: json_items(info) for agent, info in given if info and agent in present}

    # -- helpers

    def _spec_of(self, agent: Any) -> EnvSpec:
        observed, acted = self._spaces[agent]
        obs = tree_of(_seen(observed), "OBS_SPACE")
        action = ActionSpec.of(tree_of(acted, "ACT_SPACE"))
        return EnvSpec(obs.size, action.size, action=action, obs_space=obs)


def _maker(env: str) -> Callable[..., Any]:
    """What makes the envs of a PettingZoo module."""
    try:
        module = pkgutil.resolve_name(env)
    except (ImportError, AttributeError, ValueError) as error:
        owner, _, inner = env.partition(".")
        family = inner.partition(".")[0]
        needed = ""
        if isinstance(error, ModuleNotFoundError):
            needed = (error.name or "").partition(".")[0]
        cure = "install it: pip install 'ue_rl[agents]', and what else the env needs"
        if needed not in ("", "pettingzoo", owner) and owner == "pettingzoo":
            cure = f"pip install 'pettingzoo[{family}]' has the packages that PettingZoo's {family} envs need"
        elif needed not in ("", "pettingzoo"):
            cure = f"is {needed} right? If so, install the package that has it"
        raise ConfigurationError(
            f"{env!r} cannot be loaded",
            field="env",
            got=str(error),
            expected="a module such as pettingzoo.butterfly.pistonball_v6",
            cure=cure,
        ) from error
    for name in ("parallel_env", "env"):
        if callable(getattr(module, name, None)):
            make: Callable[..., Any] = getattr(module, name)
            return make
    raise ConfigurationError(
        f"{env!r} is no module of a PettingZoo env", field="env", expected="parallel_env() or env()"
    )


def _parallel(env: Any) -> Any:
    """A ParallelEnv; of an AECEnv its conversion."""
    if hasattr(env, "agent_iter"):
        from pettingzoo.utils import conversions

        if env.metadata.get("is_parallelizable"):
            return conversions.aec_to_parallel(env)
        return conversions.turn_based_aec_to_parallel(env)
    return env


def _spaces_of(env: Any) -> dict[Any, tuple[spaces.Space[Any], spaces.Space[Any]]]:
    """(observation space, action space) of every agent that an env may hold."""
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise ConfigurationError(
            "the env does not say which agents it may hold",
            field="AGENTS",
            expected="possible_agents, one or more",
            got=type(env.unwrapped).__name__,
        )
    return {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}


def _found_groups(all_spaces: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """name_0, name_1, .. of the same spaces as the group `name`, every other agent as a group of its own name."""
    families: dict[str, list[Any]] = {}
    for agent in all_spaces:
        families.setdefault(_family(agent), []).append(agent)
    groups: dict[str, list[Any]] = {}
    for agent in all_spaces:
        name = _family(agent)
        members = families[name]
        numbered = [str(member) for member in members] == [f"{name}_{k}" for k in range(len(members))]
        if numbered and len(members) > 1 and all(all_spaces[member] == all_spaces[agent] for member in members):
            groups[name] = members
        else:
            groups[str(agent)] = [agent]
    return groups


def _family(agent: Any) -> str:
    match = _NUMBERED.fullmatch(str(agent))
    if match:
        return match[1]
    return str(agent)


def _check_groups(groups: Mapping[str, Sequence[Any]], all_spaces: Mapping[Any, Any]) -> list[Any]:
    """All agents in the order of their rows."""
    ids = [agent for members in groups.values() for agent in members]
    if sorted(map(str, ids)) != sorted(map(str, all_spaces)):
        raise ConfigurationError("each agent stands in one group", field="groups", expected=list(all_spaces), got=ids)
    for name, members in groups.items():
        if any(all_spaces[member] != all_spaces[members[0]] for member in members):
            raise ConfigurationError(
                f"agents of a group have the same spaces, those of {name} have not",
                field="groups",
                got={str(member): all_spaces[member] for member in members},
            )
    return ids


def _hides_mask(space: Any) -> bool:
    return isinstance(space, spaces.Dict) and space.spaces.keys() == {"observation", "action_mask"}


def _seen(space: Any) -> Any:
    """What a trainer sees of an observation: it gets the mask apart."""
    if _hides_mask(space):
        return space["observation"]
    return space
