"""A rollout: the policy acts in NumPy, step after step, until the buffer is full."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.training.numpy_learner.batches import add_step, end_rollout
from ue_rl.training.numpy_learner.binding import Binding


def collect_rollouts(
    model: Any, binding: Binding, env: VecEnv, callback: Any, rollout_buffer: Any, n_rollout_steps: int, masked: bool
) -> bool:
    """Fills the buffer; False where a callback ended learning.

    Callbacks find in their locals what they find with Stable-Baselines3: `values`, `log_probs` and `obs_tensor` are
    tensors.

    Args:
        masked: the env is asked for action masks before each step.
    """
    assert model._last_obs is not None
    if masked and not env.has_attr("action_masks"):
        raise ValueError("the env has no action masks: it needs a method action_masks(), or learn(use_masking=False)")
    model.policy.set_training_mode(False)
    rollout_buffer.reset()
    callback.on_rollout_start()
    callback.update_locals(
        {
            "self": model,
            "env": env,
            "callback": callback,
            "rollout_buffer": rollout_buffer,
            "n_rollout_steps": n_rollout_steps,
            "use_masking": masked,
        }
    )
    space = model.action_space
    is_box = isinstance(space, spaces.Box)
    masks: NDArray[Any] | None = None
    n_steps = 0
    while n_steps < n_rollout_steps:
        seen: Any = model._last_obs
        if masked:
            masks = np.stack(env.env_method("action_masks")).reshape(env.num_envs, -1)
        with np.errstate(all="ignore"):  # torch, too, says nothing where numbers overflow; the draw refuses NaN
            outputs, values, _ = binding.networks.forward(binding.features(seen))
            actions, log_probs = binding.distribution.draw(outputs, masks)
        clipped_actions = actions
        if is_box:
            clipped_actions = np.clip(actions, space.low, space.high)
        new_obs, rewards, dones, infos = env.step(clipped_actions)
        model.num_timesteps += env.num_envs
        callback.update_locals(
            {
                "n_steps": n_steps,
                "obs_tensor": obs_as_tensor(seen, model.device),
                "actions": actions,
                "values": torch.from_numpy(values),
                "log_probs": torch.from_numpy(log_probs),
                "clipped_actions": clipped_actions,
                "new_obs": new_obs,
                "rewards": rewards,
                "dones": dones,
                "infos": infos,
                "action_masks": masks,
            }
        )
        if not callback.on_step():
            return False
        model._update_info_buffer(infos, dones)
        n_steps += 1
        if dones.any():
            _add_values_of_cut_episodes(model.gamma, binding, rewards, dones, infos)
        add_step(rollout_buffer, seen, actions, rewards, model._last_episode_starts, values, log_probs, masks)
        model._last_obs = new_obs
        model._last_episode_starts = dones
    with np.errstate(all="ignore"):
        values = binding.networks.values(binding.features(model._last_obs))
        end_rollout(rollout_buffer, values, model._last_episode_starts)
    callback.update_locals({"n_steps": n_steps, "values": torch.from_numpy(values)})
    callback.on_rollout_end()
    return True


def _add_values_of_cut_episodes(
    gamma: float, binding: Binding, rewards: NDArray[Any], dones: NDArray[np.bool_], infos: list[dict[str, Any]]
) -> None:
    """An episode that a time limit ended would have gone on: its last reward is given the value of what came next."""
    for row in np.flatnonzero(dones).tolist():
        last = infos[row].get("terminal_observation")
        if last is None or not infos[row].get("TimeLimit.truncated", False):
            continue
        one: Any
        if isinstance(last, dict):
            one = {name: np.asarray(part)[None] for name, part in last.items()}
        else:
            one = np.asarray(last)[None]  # a Discrete one may be an int of Python
        rewards[row] += gamma * float(binding.networks.values(binding.features(one))[0, 0])
