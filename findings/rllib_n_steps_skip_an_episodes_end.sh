#!/usr/bin/env bash
# RLlib: the replay buffer of DQN draws no transition that begins within n_step - 1 steps of an episode's end.
#
# Guess: with n_step=3 the last two steps of an episode are drawn with the two rewards or the one that are left, as in
#   Stable-Baselines3's NStepReplayBuffer.
# Seen (ray 2.60.0): of an episode of 5 steps only 3 beginnings are drawn with n_step=3, and 1 with n_step=5. So nothing
#   is learnt of the last observations themselves, and little of episodes that are hardly longer than n_step.
# Here: `ue-rl train --backend rllib --algo dqn` uses this buffer, and says how many states n_step leaves out;
#   Stable-Baselines3's n_steps draws all beginnings.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  'ray[rllib]==2.60.0' torch
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY' 2>"$work/log" || { tail -20 "$work/log"; exit 1; }
import gymnasium
import numpy as np
import ray
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

episode = SingleAgentEpisode(
    observation_space=gymnasium.spaces.Box(0, 9, (1,), np.float32), action_space=gymnasium.spaces.Discrete(2)
)
episode.add_env_reset(np.zeros(1, np.float32))
for step in range(1, 6):
    episode.add_env_step(np.full(1, step, np.float32), 0, 1.0, terminated=step == 5)
buffer = PrioritizedEpisodeReplayBuffer(capacity=100)
buffer.add(episode)
begun = {}
for n_step in (1, 3, 5):
    drawn = (item for _ in range(100) for item in buffer.sample(num_items=2, n_step=n_step, gamma=0.5))
    begun[n_step] = sorted({int(item.observations[0][0]) for item in drawn})
print(f"ray {ray.__version__}: of steps 0 to 4, drawn as a beginning, by n_step: {begun}")
assert begun == {1: [0, 1, 2, 3, 4], 3: [0, 1, 2], 5: [0]}, "this has changed"
PY
