"""Ray for one run: a cluster of this machine that ends with the run, or one that is there already; and its log."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import ray
import ray.rllib  # sets up its loggers

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.writing import LogFile

# bytes of the object store of a cluster that is started here
_LEAST = 100_000_000
_MOST = 2_000_000_000
_OWN = 5.0  # seconds until a cluster that was just started knows what it has
_NAMES = ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data")
_log = logging.getLogger("ue_rl.plugins.rllib")


@contextmanager
def cluster(address: str | None, cpus: int, gpus: float, wait: float) -> Iterator[None]:
    """Ray is there in the block. One that this process is connected to already is used, and stays.

    Args:
        address: of a running cluster, or "auto"; None: one of its own, with as many CPUs as are needed, however few
            this machine has, because RLlib waits for ever for those that do not exist.
        cpus, gpus: what the run will take. wait: seconds for a running cluster to have them.

    Raises:
        ConfigurationError: no cluster answers at the address, or it does not have that much.
    """
    if ray.is_initialized():
        _wait_for(cpus, gpus, wait)
        _into_run_log()
        yield
        return
    given: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    if address is None:
        wanted = os.cpu_count()
        if not wanted:
            wanted = 1
        own = {"num_cpus": max(cpus, wanted), "object_store_memory": _object_store()}
        given |= {"address": "local", "include_dashboard": False, **own}
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its C++ side writes onto our terminal, past sys.stderr
    try:
        with _signals_kept():
            try:
                with _quiet():
                    ray.init(**given)
            except (ConnectionError, ValueError, RuntimeError) as error:
                if address is None:
                    raise
                raise ConfigurationError(
                    "no Ray cluster answers",
                    field="ray_address",
                    got=f"{address}: {error}",
                    cure="start one with `ray start --head`, or leave --ray-address out to have one of this run",
                ) from error
        if address is not None:
            patience = wait
        else:
            patience = _OWN
        _wait_for(cpus, gpus, patience)
        _into_run_log()  # again: ray.init() clears handlers
        yield
    finally:
        ray.shutdown()


def _wait_for(cpus: int, gpus: float, wait: float) -> None:
    """Returns as soon as the cluster has that much to give; an error after `wait` seconds."""
    needed = {"CPU": float(cpus), "GPU": gpus}
    deadline = time.monotonic() + wait
    said = False
    while True:
        free = ray.available_resources()
        missing = [name for name, amount in needed.items() if amount > 0 and free.get(name, 0.0) < amount]
        if not missing:
            return
        name = missing[0]
        there = ray.cluster_resources().get(name, 0.0)
        got = f"{free.get(name, 0.0):g} of {there:g} {name}s are free"
        if time.monotonic() >= deadline:
            field = "num_gpus_per_learner"
            if name == "CPU":
                field = "num_env_runners"
                expected = f"{needed[name]:g} {name}s: one for each env runner and each learner"
            else:
                expected = f"{needed[name]:g} GPUs"
            raise ConfigurationError(
                "the Ray cluster has not what this run takes",
                field=field,
                expected=expected,
                got=got,
                cure="add nodes, run fewer env runners, or wait longer with --start-timeout",
            )
        if not said:
            said = True
            _log.info("waiting for the Ray cluster: %s, %g are needed", got, needed[name])
        time.sleep(0.2)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """ray.init() takes SIGTERM for itself, and ends the process on it: whose it was gets it back."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    try:
        before = {number: signal.getsignal(number) for number in numbers}
        yield
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    except ValueError as error:
        if "main thread" not in str(error):
            raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Ray's C++ side writes to stderr as it starts; what is wrong, it raises."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _object_store() -> int:
    """Bytes: of what is free, and no more than shared memory holds, or Ray goes to the disk for it."""
    free = psutil.virtual_memory().available // 4
    if os.path.isdir("/dev/shm"):
        free = min(free, shutil.disk_usage("/dev/shm").free * 4 // 5)
    return max(_LEAST, min(_MOST, free))


def _into_run_log() -> None:
    """From here on Ray's warnings go into the run's log file alone."""
    files = [handler for handler in logging.getLogger("ue_rl").handlers if isinstance(handler, LogFile)]
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [*files] or [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.WARNING)


@contextmanager
def ray_log() -> Iterator[None]:
    """Ray's warnings go into the run's log file alone, until the block ends: what ends a run is told in our words."""
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    _into_run_log()
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.propagate = propagate
            logger.setLevel(level)
