# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.plugins.mujoco.bridge import MujocoBridge as MujocoBridge
from ue_rl.plugins.mujoco.tasks import MujocoTask as MujocoTask
