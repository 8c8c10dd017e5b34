"""Errors of remote env runners reach the user: NamedFailures, a mixin for RLlib's env runner classes.

With its default settings RLlib takes a remote env runner that raises out of service, writes to a log, sleeps for a
minute and has Ray start it again, up to 1000 times; one whose constructor raises never comes back. `train()` returns
without a sample meanwhile, and `build_algo()` says "IndexError: list index out of range". What RLlib does not swallow
is what a runner returns. So an error of ue_rl is returned, as a Failure: RLlib's driver uses it, and that raises it.

Source: ray.rllib.utils.actor_manager, ray.rllib.env.env_runner_group, ray.rllib.env.env_runner (Ray 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import ray
from ray.rllib.utils.metrics import ENV_RESET_TIMER, ENV_STEP_TIMER

from ue_rl.system.errors import UeRlError

_log = logging.getLogger("ue_rl.plugins.rllib")


class Failure:
    """What a remote env runner returns in place of samples, metrics or spaces: using it raises `error`."""

    def __init__(self, error: UeRlError) -> None:
        self.error = error

    def _raise(self, *_: object) -> NoReturn:
        raise self.error

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__ = _raise

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or "error" not in self.__dict__:  # pickle asks for these
                raise AttributeError(name)
            self._raise()

    def __repr__(self) -> str:
        return f"Failure({self.error})"


class NamedFailures:
    """Before an env runner class of RLlib's: `class Mine(NamedFailures, SingleAgentEnvRunner)`.

    A UeRlError in a remote runner ends the run: `build_algo()` or `train()` raises it, with the runner's number and its
    node. One exception: with `restart_failed_env_runners=False, ignore_env_runner_failures=True` RLlib goes on without
    a runner that fails after its start. `restart_failed_sub_environments` has no effect, because it knows no quota:
    engines are started again as `env_config` says, with its `restarts`.

    Attributes:
        failure: what every further call of RLlib's is answered with; None while all is well.
    """

    failure: UeRlError | None = None

    config: Any
    env: Any
    metrics: Any
    worker_index: int | None

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        try:
            super().__init__(config=config, **kwargs)  # type: ignore[call-arg]
        except Exception as error:
            ours = _ours(error)
            if ours is None or not getattr(self, "worker_index", None):
                raise
            self._fail(ours)

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Everything that RLlib asks of a remote runner comes through here."""
        return super().apply(_answer, func, *args, **kwargs)  # type: ignore[misc]

    def _fail(self, error: UeRlError) -> None:
        error.message = f"env runner {self.worker_index} on {ray.util.get_node_ip_address()}: {error.message}"
        _log.error("%s", error, exc_info=error)
        self.failure = error
        with contextlib.suppress(Exception):  # its engines are in whatever state
            self.env.close()

    def _try_env_step(self, actions: Any) -> Any:
        """Without RLlib's second try; its own error would be a RuntimeError without a word."""
        with self.metrics.log_time(ENV_STEP_TIMER):
            results = self.env.step(actions)
        self._log_env_steps(metric=self._metrics_num_try_env_step, num_steps=1)  # type: ignore[attr-defined]
        return results

    def _try_env_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        with self.metrics.log_time(ENV_RESET_TIMER):
            return self.env.reset(seed=seed, options=options)


def _answer(runner: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `func` returns, or a Failure."""
    failure: UeRlError | None = runner.failure
    if failure is None:
        try:
            return func(runner, *args, **kwargs)
        except Exception as error:
            config = runner.config
            failure = _ours(error)
            go_on = config.ignore_env_runner_failures and not config.restart_failed_env_runners
            if failure is None or go_on:
                raise
            runner._fail(failure)
    return Failure(failure)


def _ours(error: BaseException) -> UeRlError | None:
    """The error of ue_rl's that `error` is, or that it was raised because of."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, UeRlError):
        seen = seen.__cause__
    return seen
