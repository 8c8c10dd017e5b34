"""RLlink's client against a PPO server of RLlib, which checks every episode by its own module.

python -m tests.plugins.rllib.rllink_against_ray [--client-python VENV/bin/python] [--num-envs 1 3 4 32] [--seconds 300]

Needs Ray in this interpreter; the client runs in `--client-python`, which may have none. For each number of envs a
server learns CartPole until the return has risen by 100 (or `--seconds` are over), and one learns Pendulum for 20
messages. Exits with 1 where an episode is wrong, where weights do not advance, or where the return does not rise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.external.env_runner_server_for_external_inference import EnvRunnerServerForExternalInference
from ray.rllib.env.external.rllink import RLlink

from tests.plugins.rllib.equations import cart_pole, pendulum
from tests.plugins.rllib.rllink.judge import Judge
from tests.support.listening import free_port
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.gymnasium import tree_of

EQUATIONS = {"CartPole-v1": cart_pole, "Pendulum-v1": pendulum}
_NO_RAY = "import sys; sys.modules['ray'] = None; from ue_rl.cli import cli; cli()"


class CheckingServer(EnvRunnerServerForExternalInference):  # type: ignore[misc]
    """RLlib's server, which judges what comes by the module that holds the weights that were sent last.

    Attributes:
        judge: what is wrong; seen: weights_seq_no of each state that was sent.
        logits_apart, logp_apart: the largest difference to RLlib's own numbers.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        spaces = config.observation_space, config.action_space
        action = ActionSpec.of(tree_of(spaces[1], "ACT_SPACE"))
        self._sent: Any = None
        self.off_policy = getattr(config, "num_steps_sampled_before_learning_starts", None) is not None
        self.seen: list[int] = []
        self.steps = 0
        self.logits_apart = self.logp_apart = 0.0
        outputs = sum(action.counts) or 2 * action.size
        equations = EQUATIONS[config.env_config["equations"]]
        self.judge = Judge(spaces[0].shape[0], action, outputs, "msgpack", equations, self._logp)
        super().__init__(config=config, **kwargs)

    def _send_set_state_message(self) -> None:
        if self._sent is None:
            self._sent = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()
        self._sent.set_state(self.module.get_state())
        self.seen.append(self._weights_seq_no)
        super()._send_set_state_message()

    def _process_episodes_message(self, msg_type: Any, msg_body: Any) -> None:
        wanted = 1 if self.off_policy else self.config.train_batch_size_per_learner
        self.steps += self.judge.take({"type": RLlink(msg_type).name, **msg_body}, wanted, self._logits)
        for episode in msg_body["episodes"]:
            outputs = episode["extra_model_outputs"]
            logits, logp = outputs["action_dist_inputs"]["data"], outputs["action_logp"]["data"]
            own = self._logits(episode["observations"]["data"][:-1])
            right = self._logp(own, episode["actions"]["data"])
            self.logits_apart = max(self.logits_apart, float(np.abs(logits - own).max()))
            self.logp_apart = max(self.logp_apart, float(np.abs(logp - right).max()))
        super()._process_episodes_message(msg_type, msg_body)

    def _logp(self, logits: Any, actions: Any) -> Any:
        of_logits = self._sent.get_exploration_action_dist_cls().from_logits(torch.from_numpy(np.float32(logits)))
        return of_logits.logp(torch.from_numpy(np.array(actions))).numpy()

    def _logits(self, obs: Any) -> Any:
        with torch.no_grad():
            return self._sent.forward_exploration({"obs": torch.from_numpy(np.array(obs))})[
                "action_dist_inputs"
            ].numpy()


def server_of(kind: Any, env: str, **training: Any) -> Any:
    """An Algorithm that waits for a client on `algorithm.env_runner.port`."""
    made = gym.make(env)
    port = free_port()
    config = kind().environment(
        observation_space=made.observation_space,
        action_space=made.action_space,
        env_config={"port": port, "equations": env},
    )
    config = config.env_runners(env_runner_cls=CheckingServer, num_env_runners=0)
    return (
        config.reporting(min_sample_timesteps_per_iteration=1, min_time_s_per_iteration=0)
        .training(**training)
        .build_algo()
    )


def verdict(server: CheckingServer) -> list[str]:
    """What is wrong with a run."""
    wrong = list(server.judge.mistakes[:5])
    if server.logits_apart > 1e-4 or server.logp_apart > 1e-3:
        wrong.append(f"logits differ by {server.logits_apart:.2g}, log-probabilities by {server.logp_apart:.2g}")
    least = len(server.seen) - 2
    if server.off_policy:  # RLlib answers with the weights before an update now and then: a number comes twice
        least //= 2
    if server.seen != sorted(server.seen) or server.seen[-1] < least:
        wrong.append(f"weights do not advance: {server.seen}")
    return wrong


def check(env: str, num_envs: int, python: str, seconds: float, messages: int | None) -> bool:
    """One server and one client in a process; prints a row of the table, and whether all was right."""
    given = {"train_batch_size_per_learner": 2000, "num_epochs": 6, "minibatch_size": 250, "lr": 1e-3}
    algorithm = server_of(PPOConfig, env, vf_loss_coeff=0.01, **given)
    server = algorithm.env_runner
    words = ["rllink", "--port", server.port, "--env", env, "--num-envs", num_envs, "--seed", 1, "--dialect", "msgpack"]
    client = subprocess.Popen([python, "-c", _NO_RAY, *map(str, words)], stdout=subprocess.DEVNULL)
    began, finished, rise = time.monotonic(), server.judge.finished, 0.0
    try:
        while client.poll() is None and time.monotonic() - began < seconds:
            algorithm.train()
            totals = [total for total, _ in finished]
            if len(totals) > 60:
                rise = float(np.mean(totals[-30:]) - np.mean(totals[:30]))
            if len(server.seen) > (messages or 10**9) or (messages is None and rise >= 100):
                break
        took = time.monotonic() - began
    finally:
        client.terminate()
        client.wait(20)
    wrong = verdict(server)
    if messages is None and rise < 100:
        wrong.append(f"the return has risen by {rise:.0f} only")
    mistakes, apart = len(server.judge.mistakes), f"{server.logits_apart:.1e} | {server.logp_apart:.1e}"
    counts = f"{len(server.seen)} | {server.steps:,} | {len(finished):,}"
    print(f"| {env} | {num_envs} | {counts} | {rise:+.0f} in {took:.0f} s | {apart} | {mistakes} |", flush=True)
    for sentence in wrong:
        print(sentence, flush=True)
    algorithm.stop()
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client-python", default=sys.executable)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 3, 4, 32])
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    ray.init(num_cpus=1, object_store_memory=200_000_000, include_dashboard=False, logging_level="ERROR")
    print("| env | envs | states | env-steps | episodes | return | logits | log-probabilities | mistakes |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    right = [check("CartPole-v1", n, given.client_python, given.seconds, None) for n in given.num_envs]
    right.append(check("Pendulum-v1", 4, given.client_python, given.seconds, 20))
    sys.stdout.flush()
    ray.shutdown()
    return 0 if all(right) else 1


if __name__ == "__main__":
    os._exit(main())  # RLlib's listener is a thread that never ends
