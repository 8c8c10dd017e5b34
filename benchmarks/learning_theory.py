"""Who learns from the right numbers? The table of benchmarks/README.md, on one game whose numbers are known.

    python benchmarks/learning_theory.py --json benchmarks/learning_theory.json
    python benchmarks/learning_theory.py --only "running return"   # one question, by a part of its text

RLlib has its cells where ray is installed (pip install -c constraints.txt 'ray[rllib]'). --only leaves a JSON that is
there alone: it holds a whole table.

In `Ticks` each step earns 1 and the policy's value is 2 everywhere, which with gamma 0.5 is right as long as no episode
terminates: a cut episode (truncated) is to be continued in thought, a terminated one is not. So each target that a
library computes is known before. "a plain loop" is what scripts of one file do, CleanRL's ppo.py among them:
terminated and truncated are one flag, and what follows a flag counts nothing.

Each cell holds what came out; `right` says whether it is what theory asks for, None where there is nothing to ask.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gymnasium as gym
import numpy as np
import torch
from bench_tcp import table
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from tables import measured_here, refuse_a_part

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.inference import OnnxInference, export_onnx
from ue_rl.system.seeds import env_seed
from ue_rl.training.numpy_learner.learner import numpy_learner

STEPS = 5  # of an episode
GAMMA = 0.5
VALUE = 2.0  # 1 / (1 - GAMMA)
OURS = "ue_rl, by SB3"
OURS_NUMPY = "ue_rl, by NumPy"
SB3 = "SB3"
PLAIN = "a plain loop"
RLLIB = "RLlib"
Row = dict[str, Any]


class Ticks(gym.Env[Any, Any]):
    """The number of steps so far; each earns 1. The episode ends after STEPS of them, by its rules or by a limit."""

    observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)

    def __init__(self, cut: bool = True, continuous: bool = False, endless: bool = False) -> None:
        self.action_space = gym.spaces.Discrete(2)
        if continuous:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._cut = cut
        self._endless = endless
        self._steps = 0

    def _seen(self) -> Any:
        return np.array([self._steps], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See gym.Env."""
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See gym.Env."""
        self._steps += 1
        over = self._steps == STEPS and not self._endless
        return self._seen(), 1.0, over and not self._cut, over and self._cut, {}


class MaskedTicks(Ticks):
    """In odd steps one action alone is legal."""

    def action_masks(self) -> Any:
        """bool [2]."""
        return np.array([True, self._steps % 2 == 0])


def bridged(game: type[Ticks] = Ticks, **options: Any) -> VecEnv:
    """The game behind our bridge, in this process."""
    return UnrealVecEnv(MemoryTransport(GymnasiumBridge(lambda: game(**options), num_envs=1)))


def dummy(game: type[Ticks] = Ticks, **options: Any) -> VecEnv:
    """The game by Stable-Baselines3 alone."""
    return DummyVecEnv([lambda: game(**options)])


def rounded(values: list[float]) -> list[float]:
    """Rounded for the table."""
    return [round(float(value), 4) for value in values]


def expected_returns(cut: bool) -> list[float]:
    """Of the steps of an episode."""
    if cut:
        return [VALUE] * STEPS
    return rounded([VALUE * (1 - GAMMA ** (STEPS - step)) for step in range(STEPS)])


class Targets(BaseCallback):
    """The returns that a rollout ended with."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.returns = self.model.rollout_buffer.returns[:, 0].tolist()  # type: ignore[attr-defined]


def of_a_constant_value(model: Any) -> None:
    """The model's value is VALUE, whatever it sees."""
    with torch.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(VALUE)


def sb3_targets(algorithm: type[Any], env: VecEnv) -> list[float]:
    """The returns of the first episode of a rollout that ends in the midst of the third."""
    options = dict(n_steps=2 * STEPS + 2, batch_size=2 * STEPS + 2, n_epochs=1, gamma=GAMMA, gae_lambda=1.0)
    model = algorithm("MlpPolicy", env, device="cpu", seed=0, **options)
    of_a_constant_value(model)
    targets = Targets()
    model.learn(2 * STEPS + 2, callback=targets)
    env.close()
    first, second = targets.returns[:STEPS], targets.returns[STEPS : 2 * STEPS]
    assert first == second, targets.returns
    assert targets.returns[2 * STEPS :] == [VALUE, VALUE], targets.returns
    return rounded(first)


def loop_targets(cut: bool) -> list[float]:
    """Those of a plain loop over Gymnasium's own vector env: one flag for both ends."""
    envs = SyncVectorEnv([lambda: Ticks(cut)], autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset()
    flags = []
    for _ in range(2 * STEPS):
        _, _, terminated, truncated, _ = envs.step(np.zeros(1, np.int64))
        flags.append(bool(terminated[0] or truncated[0]))
    envs.close()
    following = VALUE
    returns = []
    for over in reversed(flags):
        following = 1.0 + GAMMA * following * (not over)
        returns.append(following)
    return rounded(returns[::-1][:STEPS])


def rllib_targets(cut: bool) -> list[float]:
    """Those that RLlib's learner pipeline writes for PPO."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.columns import Columns
    from ray.tune.registry import register_env

    register_env("ticks", lambda _: Ticks(cut))
    config = PPOConfig().environment("ticks").env_runners(num_env_runners=0, rollout_fragment_length=2 * STEPS)
    config = config.training(gamma=GAMMA, lambda_=1.0, train_batch_size_per_learner=2 * STEPS, minibatch_size=2 * STEPS)
    algorithm = config.learners(num_learners=0).debugging(log_level="ERROR").build_algo()
    try:
        learner = algorithm.learner_group._learner  # private: RLlib says the targets nowhere else
        module = learner.module["default_policy"].unwrapped()
        with torch.no_grad():
            module.vf.net.mlp[-1].weight.zero_()
            module.vf.net.mlp[-1].bias.fill_(VALUE)
        episodes = algorithm.env_runner.sample(num_episodes=2, random_actions=True)
        batch = learner._learner_connector(  # private, as above
            rl_module=learner.module, batch={}, episodes=episodes, shared_data={}, metrics=learner.metrics
        )
        targets = batch["default_policy"][Columns.VALUE_TARGETS]
        mask = batch["default_policy"].get(Columns.LOSS_MASK)
        if mask is not None:
            targets = targets[mask.bool()]
        return rounded(targets[:STEPS].tolist())
    finally:
        algorithm.stop()


def ends(cut: bool) -> dict[str, Row]:
    """The targets of an episode's steps, by who computed them."""
    expected = expected_returns(cut)
    found = {
        OURS: sb3_targets(PPO, bridged(cut=cut)),
        OURS_NUMPY: sb3_targets(numpy_learner(PPO), bridged(cut=cut)),
        SB3: sb3_targets(PPO, dummy(cut=cut)),
        PLAIN: loop_targets(cut),
    }
    if importlib.util.find_spec("ray"):
        found[RLLIB] = rllib_targets(cut)
    return {who: {"got": got, "right": got == expected} for who, got in found.items()}


def masked_ends() -> dict[str, Row]:
    """The same with masks, where one action alone is legal in every second step."""
    expected = expected_returns(True)
    found = {
        OURS: sb3_targets(MaskablePPO, bridged(MaskedTicks)),
        OURS_NUMPY: sb3_targets(numpy_learner(MaskablePPO), bridged(MaskedTicks)),
        SB3: sb3_targets(MaskablePPO, dummy(MaskedTicks)),
    }
    return {who: {"got": got, "right": got == expected} for who, got in found.items()}


class Restart(Targets):
    """The engine ends at the rollout's seventh step, and another one listens at its port."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine = engine

    def _on_step(self) -> bool:
        if self.num_timesteps == 7:
            port = self.engine.port
            self.engine.close()
            self.engine = run_in_process(endless, port=port)
        return True


def endless() -> GymnasiumBridge:
    """The game without an end, for a process of its own."""
    return GymnasiumBridge(lambda: Ticks(endless=True), num_envs=1)


def lost_engine() -> dict[str, Row]:
    """The target of the step in which the engine is lost: its reward is unknown, its episode cut."""
    found = {}
    for who, algorithm in ((OURS, PPO), (OURS_NUMPY, numpy_learner(PPO))):
        restart = Restart(run_in_process(endless))
        env = ue_rl.connect(f"tcp://127.0.0.1:{restart.engine.port}", reconnect=60)
        model = algorithm("MlpPolicy", env, n_steps=12, batch_size=12, n_epochs=1, gamma=GAMMA, gae_lambda=1.0)
        of_a_constant_value(model)
        model.learn(12, callback=restart)
        env.close()
        restart.engine.close()
        got = min(rounded(restart.returns))
        found[who] = {"got": got, "right": got == GAMMA * VALUE}
    return found


def kept(model: Any, env: VecEnv) -> list[float]:
    """What the replay buffer says of an episode's last step, which a limit cut: [next observation, done]."""
    model.learn(2 * STEPS + 2)
    buffer = model.replay_buffer
    seen = float(buffer.next_observations[STEPS - 1, 0, 0])
    done = float(buffer.dones[STEPS - 1, 0] * (1 - buffer.timeouts[STEPS - 1, 0]))
    env.close()
    return [seen, done]


def replayed() -> dict[str, Row]:
    """What is kept for off-policy learning of a step that a limit cut: [next observation, done]."""
    expected = [float(STEPS), 0.0]
    found = {}
    for who, make in ((OURS, bridged), (SB3, dummy)):
        env = make(continuous=True)
        found[who] = kept(SAC("MlpPolicy", env, learning_starts=100, device="cpu"), env)
    if importlib.util.find_spec("ray"):
        found[RLLIB] = list(rllib_kept(1)[float(STEPS - 1)][:2])
    return {who: {"got": got, "right": got == expected} for who, got in found.items()}


def sb3_steps(env: VecEnv) -> list[float]:
    """DQN's target of three steps, two steps before the cut: [rewards, next observation, done, discount]."""
    model = DQN("MlpPolicy", env, n_steps=3, gamma=GAMMA, learning_starts=100, device="cpu")
    model.learn(2 * STEPS + 2)
    sample = model.replay_buffer._get_samples(np.array([STEPS - 2]))  # private: to ask for one step, not any
    env.close()
    parts = (sample.rewards, sample.next_observations, sample.dones, sample.discounts)
    return [float(part[0, 0]) for part in parts]


def several_steps() -> dict[str, Row]:
    """A target of three steps that begins two steps before the cut: [rewards, next observation, done, discount]."""
    expected = [1 + GAMMA, float(STEPS), 0.0, GAMMA**2]
    found: dict[str, Any] = {OURS: sb3_steps(bridged()), SB3: sb3_steps(dummy())}
    rows = {who: {"got": got, "right": got == expected} for who, got in found.items()}
    if importlib.util.find_spec("ray"):
        begun = sorted(rllib_kept(3))
        rows[RLLIB] = {"got": f"begins at {begun} alone", "right": begun == [float(step) for step in range(STEPS)]}
    return rows


def rllib_kept(n_step: int) -> dict[float, tuple[float, float, float]]:
    """Of the steps of a cut episode that RLlib's buffer gives out: (next observation, done, rewards)."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

    env = Ticks()
    seen, _ = env.reset()
    episode = SingleAgentEpisode(observation_space=env.observation_space, action_space=env.action_space)
    episode.add_env_reset(seen)
    while not episode.is_done:
        seen, reward, terminated, truncated, _ = env.step(0)
        episode.add_env_step(seen, 0, reward, terminated=terminated, truncated=truncated)
    buffer = PrioritizedEpisodeReplayBuffer(capacity=100)
    buffer.add(episode)
    found = {}
    for _ in range(100):
        for item in buffer.sample(num_items=3, n_step=n_step, gamma=GAMMA):
            begin, following = item.observations[0][0], item.observations[1][0]
            found[float(begin)] = (float(following), float(item.is_terminated), float(item.rewards[0]))
    return found


def running_returns() -> dict[str, Row]:
    """VecNormalize's running return behind the first step of the episode that follows a cut one."""
    found = {}
    for who, make in ((OURS, bridged), (SB3, dummy)):
        env = VecNormalize(make(), gamma=GAMMA)
        env.reset()
        for _ in range(STEPS + 1):
            env.step(np.zeros(1, np.int64))
        found[who] = round(float(env.returns[0]), 4)
        env.close()
    single = gym.wrappers.NormalizeReward(Ticks(), gamma=GAMMA)
    single.reset()
    for _ in range(STEPS):
        single.step(0)
    single.reset()
    single.step(0)
    found[PLAIN] = round(float(np.ravel(single.discounted_reward)[0]), 4)
    return {who: {"got": got, "right": got == 1.0} for who, got in found.items()}


BEFORE_TANH = (1.0, 3.0, 5.0, 7.0, 9.0)


def exact_log_prob(u: float) -> float:
    """Of tanh(u), u of a normal distribution of mean 0 and deviation 1."""
    jacobian = 2 * (math.log(2) - u - math.log1p(math.exp(-2 * u)))
    return -0.5 * u * u - 0.5 * math.log(2 * math.pi) - jacobian


def log_prob_errors(log_prob: Callable[[torch.Tensor], Any]) -> Row:
    """How far it is from the exact one, for each of BEFORE_TANH."""
    found = []
    for u in BEFORE_TANH:
        got = float(log_prob(torch.tensor([[u]], dtype=torch.float32)))
        found.append(float(f"{abs(got - exact_log_prob(u)):.1g}"))
    return {"got": found, "right": max(found) < 1e-3}


def squashed() -> dict[str, Row]:
    """Errors of log-probabilities of squashed actions in float32, for actions tanh(1), tanh(3), .. tanh(9)."""
    drawn = SquashedDiagGaussianDistribution(1)
    drawn.proba_distribution(torch.zeros(1, 1), torch.zeros(1, 1))

    def of_one_file(u: torch.Tensor) -> torch.Tensor:
        normal = torch.distributions.Normal(torch.zeros(1, 1), torch.ones(1, 1))
        return normal.log_prob(u) - torch.log(1 - torch.tanh(u) ** 2 + 1e-6)

    found = {
        "SB3, of what was drawn": log_prob_errors(lambda u: drawn.log_prob(torch.tanh(u), u)),
        "SB3, of an action alone": log_prob_errors(lambda u: drawn.log_prob(torch.tanh(u))),
        PLAIN: log_prob_errors(of_one_file),
    }
    if importlib.util.find_spec("ray"):
        from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian

        space = TorchSquashedGaussian(torch.zeros(1, 1), torch.ones(1, 1), low=-1.0, high=1.0)
        found["RLlib, of an action alone"] = log_prob_errors(lambda u: space.logp(torch.tanh(u)))
    return found


def close_scores(rows: int = 10_000) -> np.ndarray:
    """float32 [rows, 2]: the second is the greater one by a rounding."""
    first = np.exp(np.random.default_rng(0).uniform(np.log(1e-3), np.log(8.0), rows)).astype(np.float32)
    return np.stack([first, np.nextafter(first, np.float32(100))], axis=1)


def ties() -> dict[str, Row]:
    """Of 10 000 pairs of scores that are one rounding apart, how often the lower one is chosen."""
    scores = close_scores()
    logits = torch.as_tensor(scores)
    chosen = {
        "argmax of the scores: NumPy, torch, RLlib": np.argmax(scores, axis=1),
        "PPO of SB3, which compares probabilities": torch.distributions.Categorical(logits=logits)
        .probs.argmax(1)
        .numpy(),
    }
    assert (logits.argmax(1).numpy() == chosen["argmax of the scores: NumPy, torch, RLlib"]).all()
    rows = {who: {"got": int((choice == 0).sum()), "right": None} for who, choice in chosen.items()}
    rows["ue_rl's ONNX file against predict()"] = {"got": exported_ties(scores), "right": None}
    return rows


def exported_ties(scores: np.ndarray) -> str:
    """How many choices of an exported PPO, whose scores are the observation itself, are other ones than predict()'s."""

    class Scores(Ticks):
        observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)

        def _seen(self) -> Any:
            return np.zeros(2, np.float32)

    model = PPO(
        "MlpPolicy", DummyVecEnv([Scores]), policy_kwargs={"net_arch": []}, n_steps=8, batch_size=8, device="cpu"
    )
    with torch.no_grad():
        model.policy.action_net.weight.copy_(torch.eye(2))
        model.policy.action_net.bias.zero_()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scores.onnx"
        export_onnx(model, file)
        inference = OnnxInference()
        inference.load_model(file)
        played = np.ravel(inference.run_inference(scores))
    predicted = np.ravel(model.predict(scores, deterministic=True)[0])
    return f"{int((played != predicted).sum())} of {len(scores)}"


def alike(first: Any, second: Any) -> str:
    """How many of the rows of one stand in the other."""
    rows = {row.tobytes() for row in np.asarray(second)}
    return f"{sum(row.tobytes() in rows for row in np.asarray(first))} of {len(first)}"


def streams() -> dict[str, Row]:
    """Of 16 CartPoles with seed 0, how many begin as one of 16 with seed 1."""

    def by_sb3(seed: int) -> Any:
        return make_vec_env("CartPole-v1", 16, seed=seed).reset()

    def by_gymnasium(seed: int) -> Any:
        return SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 16).reset(seed=seed)[0]

    def by_bridge(seed: int) -> Any:
        env = UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", num_envs=16)))
        env.seed(seed)
        return env.reset()

    def by_rllib(seed: int) -> Any:
        from ray.rllib.algorithms.ppo import PPOConfig

        config = PPOConfig().environment("CartPole-v1").debugging(seed=seed, log_level="ERROR")
        algorithm = config.env_runners(num_env_runners=0, num_envs_per_env_runner=16).build_algo()
        try:
            episodes = algorithm.env_runner.sample(num_timesteps=16, random_actions=True, force_reset=True)
            return np.stack([episode.get_observations(0) for episode in episodes])
        finally:
            algorithm.stop()

    def by_our_training(seed: int) -> Any:
        return by_bridge(env_seed(seed))

    ways: dict[str, Callable[[int], Any]] = {
        "ue-rl train": by_our_training,
        "ue_rl, in a script": by_bridge,
        SB3: by_sb3,
        PLAIN: by_gymnasium,
    }
    if importlib.util.find_spec("ray"):
        ways[RLLIB] = by_rllib
    rows: dict[str, Row] = {}
    for who, begin in ways.items():
        got = alike(begin(0), begin(1))
        rows[who] = {"got": got, "right": got.startswith("0 ")}
    return rows


class Question(NamedTuple):
    """What is asked of all, and what theory answers."""

    asked: str
    theory: str
    ask: Callable[[], dict[str, Row]]


QUESTIONS = (
    Question("targets of the steps of an episode that a limit cut", "2, 2, 2, 2, 2", lambda: ends(True)),
    Question("of one that terminated", "1.9375, 1.875, 1.75, 1.5, 1", lambda: ends(False)),
    Question("of one that was cut, with masks", "2, 2, 2, 2, 2", masked_ends),
    Question("of the step in which an engine is lost", "1: no reward, then the value", lost_engine),
    Question("a cut step in the replay buffer: next observation, done", "5, 0", replayed),
    Question(
        "three steps, begun two before the cut: rewards, next observation, done, discount",
        "1.5, 5, 0, 0.25",
        several_steps,
    ),
    Question("the running return, one step into the episode after a cut one", "1", running_returns),
    Question("of 16 CartPoles with seed 0, begin as one with seed 1", "0", streams),
    Question("log-probability of tanh(1), tanh(3), .. tanh(9) in float32, its error", "below 0.001", squashed),
    Question("of 10 000 pairs of scores one rounding apart, the lower one is chosen", "0", ties),
)


def said(row: Row) -> str:
    """A cell."""
    got = row["got"]
    if isinstance(got, list):
        got = ", ".join(f"{value:g}" for value in got)
    if row["right"] is False:
        got = f"**{got}**"
    return str(got)


def main() -> int:
    """Asks, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a part of a question; may be given again")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    refuse_a_part(args.only, args.json)
    rows: dict[str, dict[str, Any]] = {}
    for question in QUESTIONS:
        if args.only is None or any(part in question.asked for part in args.only):
            rows[question.asked] = {"theory": question.theory, "found": question.ask()}
    alike: dict[tuple[str, str, str], list[str]] = {}
    for asked, row in rows.items():
        for who, cell in row["found"].items():
            alike.setdefault((asked, row["theory"], said(cell)), []).append(who)
    printed = [(asked, theory, got, ", ".join(who)) for (asked, theory, got), who in alike.items()]
    table("Who learns from the right numbers", "asked | theory | got | who", printed)
    if args.json:
        packages = ["numpy", "torch", "gymnasium", "stable-baselines3", "sb3-contrib", "onnxruntime"]
        if importlib.util.find_spec("ray"):
            packages.append("ray")
        args.json.write_text(json.dumps({"about": measured_here(*packages), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
