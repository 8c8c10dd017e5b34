"""DummyVecEnv, SubprocVecEnv, SyncVectorEnv and AsyncVectorEnv, hosted in an engine: a pytest plugin for run.py.

Each name takes what upstream's takes, hosts the env functions in a GymnasiumBridge and connects to it over the carrier
that $UE_RL_CARRIER names. `pytest -p adapter` puts them in the place of upstream's classes, in every module of
stable_baselines3, sb3_contrib and gymnasium that has the name, before a test module is imported. Nothing else is
replaced. The envs run in a thread of the same process, because the tests' env functions are lambdas.

With UE_RL_CARRIER=none nothing is replaced: the figures to compare with. Outcomes are written to $UE_RL_OUTCOMES, a
JSON object per line: test, outcome, error.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import pytest
import sb3_contrib
import stable_baselines3
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import dummy_vec_env, subproc_vec_env

from ue_rl import UnrealVecEnv, UnrealVectorEnv
from ue_rl.bridges import GymnasiumBridge, run_in_thread, run_shm_in_thread
from ue_rl.bridges.shm.upgrade import ShmUpgrader
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError

CARRIERS = ("memory", "tcp", "tcp-per-env", "shm", "shm-by-name")
PARAMETERS = ("gravity", "max_count")
CARRIER = os.environ.get("UE_RL_CARRIER", "memory")
_NO_SUCH_MODE = (
    "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, actual"
    " got {}"
)
EnvFunctions = Sequence[Callable[[], gym.Env[Any, Any]]]

_open: list[Callable[[], None]] = []  # what the running test has opened


def host(env_fns: EnvFunctions) -> tuple[GymnasiumBridge, Transport, Callable[[], None]]:
    """An engine with one env for each function, a transport to it, and what ends both."""
    makers = [lambda fn=fn: _announce(fn()) for fn in env_fns]
    bridge = GymnasiumBridge(makers, send_info=True)
    if CARRIER == "memory":
        return bridge, MemoryTransport(bridge), bridge.close
    if CARRIER == "shm-by-name":
        engine: Any = run_shm_in_thread(bridge)
        how: dict[str, Any] = {}
    else:
        engine = run_in_thread(bridge, upgrader=ShmUpgrader() if CARRIER == "shm" else None)
        how = {
            "tcp": {"transport": "tcp", "channel": "shared"},
            "tcp-per-env": {"transport": "tcp", "channel": "per_env"},
            "shm": {"transport": "shm"},
        }[CARRIER]
    try:
        transport = open_transport(engine.url, **how)
    except BaseException:
        engine.close()
        raise

    def end() -> None:
        transport.close()
        engine.close()
        bridge.close()

    return bridge, transport, end


def _announce(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """`env`, whose numbers that tests set and read (`set_attr`, `call`) are parameters of the game."""
    inner = env.unwrapped
    if type(inner).__name__ == "GenericTestEnv":
        inner.max_count = 0  # its tests set it anew
    if any(hasattr(inner, name) for name in PARAMETERS):
        known = [name for name in PARAMETERS if hasattr(inner, name)]
        inner.list_parameters = lambda: {name: (float(getattr(inner, name)), -1e6, 1e6) for name in known}
        inner.set_parameter = lambda name, value: setattr(inner, name, type(getattr(inner, name))(value))
    return env


def _is_dynamic(space: gym.Space[Any]) -> bool:
    """Is it, or is a part of it, of no fixed size?"""
    parts: Any = getattr(space, "spaces", ())
    inner = parts.values() if isinstance(parts, dict) else parts
    return isinstance(space, (spaces.Graph, spaces.Sequence)) or any(_is_dynamic(part) for part in inner)


def _render_mode(transport: Transport) -> str | None:
    """As upstream's: that of the envs."""
    return "rgb_array" if "RENDER" in transport.connect().features else None


class _Hosted:
    """Ends the engine with the env, as upstream's classes close their envs."""

    _end: Callable[[], None] = staticmethod(lambda: None)

    def _owns(self, end: Callable[[], None]) -> None:
        self._end = weakref.finalize(self, end)
        _open.append(self._end)


class DummyVecEnv(_Hosted, UnrealVecEnv):
    """In the place of stable_baselines3's."""

    def __init__(self, env_fns: EnvFunctions) -> None:
        bridge, transport, end = host(env_fns)
        self._owns(end)
        monitored = all(is_wrapped(env, Monitor) for env in bridge.envs)
        super().__init__(transport, monitor=monitored, render_mode=_render_mode(transport))
        hosted = bridge.envs[0].action_space
        if hosted == self.action_space:
            self.action_space = hosted  # which a model seeds: some tests' envs draw from it

    def close(self) -> None:
        """Ends the engine too."""
        super().close()
        self._end()


class SubprocVecEnv(DummyVecEnv):
    """In the place of stable_baselines3's; `start_method` is of no concern to an engine."""

    def __init__(self, env_fns: EnvFunctions, start_method: str | None = None) -> None:
        multiprocessing.get_context(start_method)  # refuses what is none, as upstream's does
        super().__init__(env_fns)


class SyncVectorEnv(_Hosted, UnrealVectorEnv):
    """In the place of gymnasium's."""

    def __init__(
        self,
        env_fns: EnvFunctions,
        copy: bool = True,
        observation_mode: Any = "same",
        autoreset_mode: Any = AutoresetMode.NEXT_STEP,
    ) -> None:
        if observation_mode not in ("same", "different") and not isinstance(observation_mode, tuple):
            raise ValueError(_NO_SUCH_MODE.format(observation_mode))
        if observation_mode != "same":
            raise NotImplementedError("observation_mode: the envs of an engine have one space")
        bridge, transport, end = host(env_fns)
        self._owns(end)
        super().__init__(transport, autoreset_mode=AutoresetMode(autoreset_mode), render_mode=_render_mode(transport))
        hosted = batch_space(bridge.envs[0].action_space, self.num_envs)
        if hosted == self.action_space:
            self.action_space = hosted  # with the generator that the test has seeded: generators do not travel

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the engine too."""
        super().close_extras()
        self._end()


class AsyncVectorEnv(SyncVectorEnv):
    """In the place of gymnasium's; what is about its processes is of no concern to an engine."""

    def __init__(
        self,
        env_fns: EnvFunctions,
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Any = None,
        observation_mode: Any = "same",
        autoreset_mode: Any = AutoresetMode.NEXT_STEP,
    ) -> None:
        try:
            super().__init__(env_fns, copy, observation_mode, autoreset_mode)
        except ConfigurationError as error:
            if shared_memory and _is_dynamic(env_fns[0]().observation_space):  # upstream cannot either
                raise TypeError("it has a dynamic shape so its not possible to make a static shared memory.") from error
            raise


def replace() -> None:
    """Puts the names of this module in the place of upstream's, wherever upstream has them."""
    pairs: dict[Any, type] = {
        dummy_vec_env.DummyVecEnv: DummyVecEnv,
        subproc_vec_env.SubprocVecEnv: SubprocVecEnv,
        gym.vector.SyncVectorEnv: SyncVectorEnv,
        gym.vector.AsyncVectorEnv: AsyncVectorEnv,
    }
    for package in (stable_baselines3, sb3_contrib):
        for part in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            with contextlib.suppress(ImportError):  # some need what only they need, such as pandas
                importlib.import_module(part.name)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("stable_baselines3", "sb3_contrib", "gymnasium"):
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, type) and value in pairs:
                setattr(module, attribute, pairs[value])


def pytest_configure(config: pytest.Config) -> None:
    """Replaces; called before a test module is imported."""
    if CARRIER != "none":
        replace()


@pytest.fixture(autouse=True)
def _end_engines() -> Iterator[None]:
    """Ends what a test has left open, as upstream's tests often do."""
    yield
    for end in copy.copy(_open):
        end()
    _open.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes the outcome of each test."""
    path = os.environ.get("UE_RL_OUTCOMES")
    if path is None or (report.when != "call" and report.outcome == "passed"):
        return
    outcome = report.outcome if report.when == "call" or report.outcome == "skipped" else "failed"
    if hasattr(report, "wasxfail"):
        outcome = "passed"
    error = ""
    if outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        error = " ".join(str(report.longrepr if crash is None else crash.message).split())[:300]
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            json.dumps({"test": report.nodeid.removeprefix("tests/"), "outcome": outcome, "error": error}) + "\n"
        )
