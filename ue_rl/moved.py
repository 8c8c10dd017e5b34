"""Old import paths: a module that has moved is found under its former name, with a DeprecationWarning.

The finder stands last in `sys.meta_path`, so that it costs nothing where a module exists.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    "ue_rl.gym_env": "ue_rl.envs.gym_env",
    "ue_rl.gym_vector_env": "ue_rl.envs.vector_env",
    "ue_rl.images": "ue_rl.spec",
    "ue_rl.handshake": "ue_rl.wire.handshake",
    "ue_rl.kernels": "ue_rl.compiled",
    "ue_rl.kernels_pure": "ue_rl.wire.kernels_pure",
    "ue_rl.observations": "ue_rl.envs.observations",
    "ue_rl.segment": "ue_rl.shm.segment",
    "ue_rl.shm_header": "ue_rl.shm.header",
    "ue_rl.shm_offer": "ue_rl.shm.offer",
    "ue_rl.shm_ring": "ue_rl.shm.ring",
    "ue_rl.spaces": "ue_rl.envs.spaces",
    "ue_rl.vec_env": "ue_rl.envs.vec_env",
    "ue_rl.agents.rllib": "ue_rl.rllib.multi_agent_env",
    "ue_rl.cli.bench_envs": "ue_rl.testing.do_nothing",
    "ue_rl.cli.curves": "ue_rl.training.curves",
    "ue_rl.cli.engine": "ue_rl.training.engine",
    "ue_rl.cli.listening": "ue_rl.cli.common",
    "ue_rl.cli.run_directory": "ue_rl.training.directory",
    "ue_rl.cli.train_callbacks": "ue_rl.training.callbacks",
    "ue_rl.cli.train_options": "ue_rl.training.options",
    "ue_rl.cli.training": "ue_rl.training.run",
    "ue_rl.connections.arguments": "ue_rl.transport",
    "ue_rl.connections.base": "ue_rl.transport",
    "ue_rl.connections.link": "ue_rl.connections.tcp.link",
    "ue_rl.connections.shared_memory": "ue_rl.connections.shm.connection",
    "ue_rl.connections.shm_attach": "ue_rl.connections.shm.attach",
    "ue_rl.connections.shm_commands": "ue_rl.connections.shm.commands",
    "ue_rl.connections.shm_faults": "ue_rl.connections.shm.waiting",
    "ue_rl.connections.shm_plain": "ue_rl.connections.shm.plain",
    "ue_rl.connections.shm_torch": "ue_rl.connections.shm.torch_upload",
    "ue_rl.connections.shm_upgrade": "ue_rl.connections.shm.upgrade",
    "ue_rl.connections.shm_waiting": "ue_rl.connections.shm.waiting",
    "ue_rl.connections.wirings": "ue_rl.connections.tcp.wirings",
    "ue_rl.bridges.child": "ue_rl.bridges.runners",
    "ue_rl.bridges.connection": "ue_rl.bridges.tcp.connection",
    "ue_rl.bridges.gymnasium_images": "ue_rl.bridges.gymnasium",
    "ue_rl.bridges.server": "ue_rl.bridges.tcp.server",
    "ue_rl.bridges.session": "ue_rl.bridges.tcp.session",
    "ue_rl.bridges.shm_commands": "ue_rl.bridges.shm.commands",
    "ue_rl.bridges.shm_host": "ue_rl.bridges.shm.host",
    "ue_rl.bridges.shm_runners": "ue_rl.bridges.runners",
    "ue_rl.bridges.shm_segment": "ue_rl.bridges.shm.segment",
    "ue_rl.bridges.shm_steps": "ue_rl.bridges.shm.steps",
    "ue_rl.bridges.shm_upgrade": "ue_rl.bridges.shm.upgrade",
    "ue_rl.inference.component": "ue_rl.inference.runtime.component",
    "ue_rl.inference.export_graph": "ue_rl.inference.export.graph",
    "ue_rl.inference.export_models": "ue_rl.inference.export.models",
    "ue_rl.inference.export_observations": "ue_rl.inference.export.observations",
    "ue_rl.inference.export_policies": "ue_rl.inference.export.policies",
    "ue_rl.inference.export_verify": "ue_rl.inference.export.verify",
    "ue_rl.inference.loading": "ue_rl.inference.runtime.loading",
    "ue_rl.inference.onnx": "ue_rl.inference.runtime.onnx",
    "ue_rl.inference.policy_protocol": "ue_rl.inference.server.protocol",
    "ue_rl.inference.policy_server": "ue_rl.inference.server.server",
    "ue_rl.inference.reload": "ue_rl.inference.runtime.reload",
    "ue_rl.inference.sb3": "ue_rl.inference.export.sb3",
    "ue_rl.testing.faulty_engine": "ue_rl.testing.engines.faulty",
    "ue_rl.testing.plugin_dialect": "ue_rl.testing.engines.plugin_dialect",
    "ue_rl.testing.plugin_stand_in": "ue_rl.testing.engines.plugin_stand_in",
    "ue_rl.testing.shm_faulty_engine": "ue_rl.testing.engines.shm_faulty",
}


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of MOVED under their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None for every other name."""
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module at its new place, under whose name it stays."""
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} has moved to {new}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already; gives it back its own spec, which the import system has just replaced."""
        if module.__spec__ is not None and module.__spec__.loader is self:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Adds the finder, once."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
