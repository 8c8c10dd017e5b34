"""MuJoCo models as games: N envs of one model, stepped at once (docs/mujoco.md)."""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
