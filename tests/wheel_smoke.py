"""A built wheel, installed alone: compiled modules, a trainer and an engine on NumPy alone. Not a pytest file.

python tests/wheel_smoke.py            exits with a traceback where something is wrong
python tests/wheel_smoke.py --pure     of a wheel without compiled modules
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np

import ue_rl.inference
from ue_rl.bridges import VectorBridge, run_in_thread
from ue_rl.connections import open_engine
from ue_rl.protocol.spec import EnvSpec


class Adder(VectorBridge):
    """The observation is the sum of the actions."""

    def reset_envs(self, env_ids, seeds=None, options=None):  # type: ignore[no-untyped-def]
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions, env_ids):  # type: ignore[no-untyped-def]
        self.outbox.obs[env_ids] += actions


def main(pure: bool) -> None:
    """Says what was tried."""
    for module in ("ue_rl.protocol.text._kernels", "ue_rl.protocol.memory._sync"):
        assert (find_spec(module) is None) == pure, module
    with run_in_thread(Adder(EnvSpec(2, 2, num_envs=3)), port=0) as server:
        engine = open_engine("127.0.0.1", server.port, transport="tcp", timeout=10)
        engine.reset()
        engine.receive()
        engine.send_actions(np.full((3, 2), 0.1, np.float32))
        np.testing.assert_array_equal(engine.receive().obs, np.full((3, 2), 0.1, np.float32))
        facts = engine.describe()
        engine.close()
    assert facts["kernels"] == ("pure" if pure else "compiled"), facts
    assert not {"torch", "stable_baselines3", "gymnasium"} & set(sys.modules)
    print(f"{ue_rl.__file__}: {facts}")


if __name__ == "__main__":
    main("--pure" in sys.argv[1:])
