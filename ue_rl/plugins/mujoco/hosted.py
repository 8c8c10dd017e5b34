"""What `ue-rl serve --mujoco` hosts: the entry point of setup.cfg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ue_rl.cli.common import WrongCommandLine
from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.plugins.mujoco.bridge import MujocoBridge


def hosted(model: str, task: Any, num_envs: int, arguments: dict[str, Any]) -> MujocoBridge:
    """The bridge of a model, or of a task by name; `task`: a class of MujocoTask, or None.

    Raises:
        ConfigurationError: MuJoCo is not installed, or the bridge refuses the model. WrongCommandLine: `arguments` are
            not the bridge's.
    """
    try:
        from ue_rl.plugins.mujoco.bridge import MujocoBridge
    except ImportError as error:
        cure = "pip install 'ue_rl[mujoco]'"
        raise ConfigurationError("the package mujoco is needed", got=str(error), cure=cure) from error
    try:
        return MujocoBridge(model, task, num_envs, **arguments)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise WrongCommandLine("not an argument of MujocoBridge", field="kwargs", got=str(error)) from error
