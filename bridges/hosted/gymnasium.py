"""GymnasiumBridge: hosts any Gymnasium env as an engine, one instance per env.

Over the wire it gives what SB3's DummyVecEnv gives over the same envs, bit for bit where their numbers fit float32,
which is what travels. Observations of float64 (those of Gymnasium's MuJoCo envs) are announced and given out as
float64, but rounded to float32 on the way. A network takes them as float32 anyhow; the running statistics of
VecNormalize, and code of your own, see a difference in the eighth digit. Seeds arrive as they were given, and a
finished env waits for the trainer's reset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.calls import blames_options
from ue_rl.bridges.game import EnvIds
from ue_rl.bridges.hosted.gymnasium_envs import (
    AnyEnv,
    EnvFactory,
    EnvMaker,
    HoldsEnvs,
    attribute,
    flat_mask,
    make_gymnasium,
    render_fps,
    reset_keywords,
    rewards_of_goals,
)
from ue_rl.bridges.vector import VectorBridge
from ue_rl.protocol.spaces.gymnasium import ObservationWriter, action_reader, find_image, tree_of
from ue_rl.protocol.spaces.tree import Leaf, LeafKind, Space
from ue_rl.protocol.spaces.walks import getter
from ue_rl.protocol.spec import DEFAULT_FPS, ActionSpec, EnvSpec, EnvType, ImageSpec
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.json_text import json_items


class GymnasiumBridge(HoldsEnvs, VectorBridge):
    """Gymnasium envs behind one bridge.

    Args:
        env: a registered id such as "CartPole-v1", a callable that makes an env, or a list of such callables, one for
            each env, which make envs with the same spaces.
        num_envs: how many, each an instance of its own; None: one for each callable.
        env_type: MULTI, SINGLE or RLBASE.
        send_info: send the JSON-able part of each info dict (INFO).
        images: carry the image of the observation, wherever it stands in it, as an image, over shared memory alone:
            text has none (docs/spaces.md, "Images").
        masks: send which actions are legal (MASK). None: where the env has `action_masks()`, as sb3-contrib calls it.
            True: also where it does not, from `info["action_mask"]` of every reset and step. False: never.
        parameters: what a trainer may set: attribute paths of the unwrapped env to (value, low, high), such as
            {"gravity": (9.8, 1, 20)}. None: those of the env's own `list_parameters()`, which gives the same form, and
            `set_parameter(name, value)`.
        make_kwargs: for gymnasium.make or the callables.

    Observations and actions keep their spaces: Dict, Tuple, Box, Discrete, MultiDiscrete, MultiBinary, in each other.
    An env made with render_mode="rgb_array" is drawn for the trainer (RENDER), one with `compute_reward` computes the
    rewards of goals for it (GOAL_REWARD).

    Raises:
        ConfigurationError: an unknown id, num_envs below 1, a space that the wire cannot carry, `images` of an env that
            has none, `masks` of an env without choices, a parameter that is no attribute, one env object for several
            envs, or envs with different spaces.
    """

    compute_reward: Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]  # where the envs can

    def __init__(
        self,
        env: str | EnvFactory | Sequence[EnvFactory],
        num_envs: int | None = None,
        *,
        env_type: EnvType = EnvType.MULTI,
        send_info: bool = False,
        images: bool = False,
        masks: bool | None = None,
        parameters: Mapping[str, tuple[float, float, float]] | None = None,
        **make_kwargs: Any,
    ) -> None:
        maker = EnvMaker(env, lambda source: make_gymnasium(source, make_kwargs), _spaces_of)
        first, num_envs = self.hold(maker, num_envs, parameters)
        self._send_info = send_info
        self._reset_takes = reset_keywords(first)
        action = ActionSpec.of(tree_of(first.action_space, "ACT_SPACE"))
        self._to_env = action_reader(first.action_space)
        self._masks = env_type is not EnvType.RLBASE and _wants_masks(first, action, masks)
        features = {"TRUNC", *(word.upper() for word in self._reset_takes)} | ({"INFO"} if send_info else set())
        if env_type is not EnvType.RLBASE:  # which has no words for these
            features |= self.offer_what_envs_can()
        super().__init__(
            EnvSpec(
                act_size=action.size,
                env_type=env_type,
                num_envs=num_envs,
                action=action,
                features=frozenset(features),
                render_fps=render_fps(first) if "RENDER" in features else DEFAULT_FPS,
                parameters=() if env_type is EnvType.RLBASE else self._parameters.parameters,
                **self._observation_side(first.observation_space, images),
            )
        )

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure; makes or closes envs until there are `spec.num_envs`.

        Raises:
            ConfigurationError: other sizes than those of the env.
        """
        if self._spec is not None and (spec.obs_size, spec.act_size) != (self._spec.obs_size, self._spec.act_size):
            raise ConfigurationError(
                "this bridge's sizes are those of its env",
                field="OBS, ACT",
                expected=(self._spec.obs_size, self._spec.act_size),
                got=(spec.obs_size, spec.act_size),
            )
        with self.lock:
            super().configure(spec)
            self._mask_askers = [attribute(env, "action_masks") for env in self.envs]

    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """See VectorBridge."""
        takes_seed = "seed" in self._reset_takes
        with np.errstate(over="ignore"):
            for env, seed, option in zip(env_ids.tolist(), seeds, options, strict=True):
                given: dict[str, Any]
                if takes_seed:
                    given = {"seed": seed}
                else:
                    given = {}
                if option is not None:  # some wrappers take no None
                    given["options"] = option
                with blames_options(option, env):
                    obs, info = self.envs[env].reset(**given)
                self._write_observation(env, obs)
                if self._masks:
                    self._write_mask(env, info, False)
                self._note(env, info)

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge."""
        out = self.outbox
        to_env = self._to_env
        envs = self.envs
        plain = self._plain
        masks = self._masks
        rows = out.obs
        rewards = out.rewards
        dones = out.dones
        cut = out.truncated
        if plain:
            targets = []
        else:
            targets = self._write.targets(rows, out.image)
        with np.errstate(over="ignore"):
            for env in env_ids.tolist():
                obs, reward, terminated, truncated, info = envs[env].step(to_env(actions[env]))
                if plain:
                    rows[env] = obs
                else:
                    for get, view in targets[env]:
                        view[...] = get(obs)
                rewards[env] = reward
                dones[env] = bool(terminated or truncated)
                cut[env] = truncated and not terminated
                if masks:
                    self._write_mask(env, info, terminated)
                if info:
                    self._note(env, info)

    def offer_what_envs_can(self) -> set[str]:
        """See HoldsEnvs."""
        features = super().offer_what_envs_can() | ({"MASK"} if self._masks else set())
        rewards = rewards_of_goals(self.envs[0])
        if rewards is not None:
            self.compute_reward = rewards
            features.add("GOAL_REWARD")
        return features

    # -- rows

    def _observation_side(self, space: Any, images: bool) -> dict[str, Any]:
        """The observation's arguments of EnvSpec, without a tree where they say it all; makes what writes the rows."""
        path = None
        if images:
            path = find_image(space)
        tree = tree_of(space, "OBS_SPACE", path)
        own_image = None
        if path is not None:
            own_image = getter(path)(space)
        image = None
        if own_image is not None:
            image = _image_spec(own_image, only=not tree.size)
        image_shape = ()
        if own_image is not None:
            image_shape = own_image.shape
        self._write = ObservationWriter(tree, image_shape)
        self._plain = isinstance(tree, Leaf) and len(tree.shape) <= 1 and image is None and not tree.wide
        row = _plain_row(tree)
        if row is None:
            obs_size = tree.size
            if not obs_size:
                obs_size = 1
            return {"obs_size": obs_size, "image": image, "obs_space": tree}
        bounded = np.isfinite([*row.low, *row.high]).any()
        bounds = {}
        if bounded:
            bounds = {"obs_low": row.low, "obs_high": row.high}
        size = row.size
        if not size:
            size = 1
        return {"obs_size": size, "image": image, **bounds}

    def _write_observation(self, env: int, obs: Any) -> None:
        if self._plain:
            self.outbox.obs[env] = obs
            return
        for get, view in self._write.targets(self.outbox.obs, self.outbox.image)[env]:
            view[...] = get(obs)

    def _write_mask(self, env: int, info: dict[str, Any], terminated: bool) -> None:
        """After a terminal state every choice is called legal: no action follows, and some envs then have no mask."""
        masks = self.outbox.masks
        if terminated:
            masks[env] = 1
            return
        ask = self._mask_askers[env]
        if ask is None:
            mask = info.get("action_mask")
        else:
            mask = ask()
        if mask is None:
            raise ConfigurationError(
                "the env gave no action mask",
                fault="engine",
                env_id=env,
                field="MASK",
                expected='action_masks(), or "action_mask" in the info of every reset and step',
                got=sorted(info),
            )
        masks[env] = flat_mask(mask, masks.shape[1], env)

    def _note(self, env: int, info: dict[str, Any]) -> None:
        if self._send_info and info:
            plain = json_items(info)
            if plain:
                self.write_info(env, plain)


def _spaces_of(env: AnyEnv) -> dict[Any, Any]:
    return {name: getattr(env, name) for name in ("observation_space", "action_space")}


def _plain_row(tree: Space) -> Leaf | None:
    """What the handshake can say of `tree` without a tree: one row of floats, an image, or a Dict of `obs` and `image`.

    Returns:
        the row; of an image alone the image, which has no bounds.
    """
    parts = dict(tree.parts)
    if parts.keys() == {"obs", "image"} and parts["image"] == Leaf(LeafKind.IMAGE):
        tree = parts["obs"]
    elif tree == Leaf(LeafKind.IMAGE):
        return Leaf(LeafKind.IMAGE)
    plain = isinstance(tree, Leaf) and tree.kind is LeafKind.BOX and len(tree.shape) == 1 and tree.dtype == "float32"
    if plain and isinstance(tree, Leaf):
        return tree
    return None


def _image_spec(space: gym.spaces.Box, only: bool) -> ImageSpec:
    """The image as SB3 sees it; the order of the env's own array is kept.

    Of three dimensions the shortest holds the channels, first or last; where it is the middle one, the channels are
    last. Two dimensions are one channel.
    """
    shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
    if len(space.shape) == 3 and int(np.argmin(shape)) == 0:
        return ImageSpec(shape[1], shape[2], shape[0], channels_first=True, only=only)
    return ImageSpec(shape[0], shape[1], shape[2], only=only)


def _wants_masks(env: AnyEnv, action: ActionSpec, wanted: bool | None) -> bool:
    if wanted is False or (wanted is None and attribute(env, "action_masks") is None):
        return False
    if wanted and not action.mask_size:
        raise ConfigurationError(
            "an action mask needs choices",
            field="masks",
            expected="a space with a Discrete part",
            got=env.action_space,
            cure="leave masks=True out",
        )
    return bool(action.mask_size)
