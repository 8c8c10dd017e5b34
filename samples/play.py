"""Let an exported policy act in a running engine, with NumPy and onnxruntime only: no torch, no SB3.

ue-rl serve --env CartPole-v1 --num-envs 1 &
python samples/play.py cartpole.onnx [tcp://127.0.0.1:7777] [--episodes 5]
"""

from __future__ import annotations

import argparse

from ue_rl.connections import open_transport
from ue_rl.inference import OnnxInference


def main() -> None:
    """Plays episodes in all envs at once and prints their returns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("url", nargs="?", default="tcp://127.0.0.1:7777")
    parser.add_argument("--episodes", type=int, default=5)
    arguments = parser.parse_args()

    policy = OnnxInference(arguments.model)
    engine = open_transport(arguments.url)
    policy.require_spaces(engine.spec)
    engine.reset()
    states = engine.receive()
    returns = [0.0] * engine.spec.num_envs
    played = 0
    while played < arguments.episodes:
        masks = states.masks if policy.takes_masks else None  # which choices are legal now
        engine.send_actions(policy.run_inference(states.obs, action_masks=masks))
        states = engine.receive()
        finished = [env for env, done in enumerate(states.dones) if done]
        for env, reward in enumerate(states.rewards):
            returns[env] += float(reward)
        for env in finished:
            played += 1
            print(f"episode {played}: env {env}, return {returns[env]:.2f}")
            returns[env] = 0.0
        if finished:
            engine.reset(finished)
            states = engine.receive()
    engine.close()


if __name__ == "__main__":
    main()
