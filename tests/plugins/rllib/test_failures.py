"""NamedFailures without a cluster: what RLlib's driver would be answered with."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import torch
from ray.exceptions import RayTaskError
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

import ue_rl.plugins.rllib
from ue_rl.devtools.testing import chaos_command
from ue_rl.plugins.rllib.failures import Failure, NamedFailures
from ue_rl.system.errors import ConfigurationError, EngineDisconnected, EngineNotStarted, RestartsSpent

torch.set_num_threads(1)

EXITS = [sys.executable, "-S", "-c", "print('no licence'); raise SystemExit(3)", "{port}"]


def runner_of(
    engine: Any, worker_index: int = 2, tolerance: dict[str, Any] | None = None, kind: Any = None, **options: Any
) -> Any:
    ue_rl.plugins.rllib.register()
    config = PPOConfig().environment("ue_rl", env_config={"engine": engine, **options.pop("env_config", {})})
    config.env_runners(num_env_runners=2, num_envs_per_env_runner=2, **options)
    config.fault_tolerance(delay_between_env_runner_restarts_s=0, **(tolerance or {}))
    return (kind or ue_rl.plugins.rllib.UnrealEnvRunner)(config=config, worker_index=worker_index)


def sent(answer: Any) -> Any:
    """As it reaches the driver."""
    return pickle.loads(pickle.dumps(answer))


def test_errors_reach_the_driver_with_all_their_fields() -> None:
    given = {"fault": "engine", "env_id": 3, "field": "OBS", "expected": [1, 2], "got": "nan", "cure": "try again"}
    error = EngineNotStarted("it failed", **given)
    wrapped = sent(RayTaskError("f", f"the traceback: {error}", error)).as_instanceof_cause()  # as ray.get raises it
    assert isinstance(wrapped, EngineNotStarted)
    assert "it failed (env 3, field OBS); expected [1, 2]; got nan [at fault: engine]. Try again" in str(wrapped)
    assert (wrapped.env_id, wrapped.cure) == (3, "try again")


def test_using_a_failure_raises_its_error() -> None:
    failure = sent((Failure(EngineDisconnected("it went away", fault="engine")), {}))[0]
    for use in (
        iter, len, bool, lambda f: f["env_runners"], lambda f: "x" in f, lambda f: f.get("x"),
        lambda f: sum(1 for _ in f), lambda f: {**f},
    ):  # fmt: skip
        with pytest.raises(EngineDisconnected, match="it went away"):
            use(failure)
    assert "it went away" in repr(failure)


def test_a_remote_runner_whose_engine_does_not_start() -> None:
    runner = runner_of(EXITS)
    for ask in (lambda r: r.assert_healthy(), lambda r: (r.sample(), r.get_metrics()), lambda r: r.get_spaces()):
        with pytest.raises(EngineNotStarted, match=r"env runner 2 on [\d.:a-f]+: engine 0 .*exit code 3") as caught:
            len(sent(runner.apply(ask)))
        assert "no licence" in str(caught.value)
    assert isinstance(runner.apply(lambda r: r.stop()), Failure)


def test_rllibs_stock_runner_can_have_it_too() -> None:
    class Stock(NamedFailures, SingleAgentEnvRunner):
        pass

    vectorized = {"gym_env_vectorize_mode": "vector_entry_point"}
    with pytest.raises(EngineNotStarted, match=r"env runner 2 on .*: engine 0 .*exit code 3"):
        len(sent(runner_of(EXITS, kind=Stock, **vectorized).apply(lambda r: r.sample())))
    runner = runner_of(
        chaos_command(fault="exit", after=30),
        kind=Stock,
        env_config={"restarts": 1},
        tolerance={"restart_failed_sub_environments": True},
        **vectorized,
    )
    with pytest.raises(RestartsSpent, match=r"env runner 2 on .*: engine 0 .* lost 2 times within 60 s of play"):
        len(sent(runner.apply(lambda r: r.sample(num_timesteps=1000))))


def test_the_runner_in_the_driver_raises() -> None:
    with pytest.raises(EngineNotStarted, match=r"^engine 0 .*exit code 3"):
        runner_of(EXITS, worker_index=0, env_config={"seed": 1}, create_env_on_local_worker=True)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("restart_failed_sub_environments", [False, True])
def test_an_engine_that_always_dies(batched: bool, restart_failed_sub_environments: bool) -> None:
    own = {} if batched else {"env_to_module_connector": lambda *_, **__: FlattenObservations()}
    runner = runner_of(
        chaos_command(fault="exit", after=30),
        env_config={"restarts": 2},
        tolerance={"restart_failed_sub_environments": restart_failed_sub_environments},
        **own,
    )
    assert runner.batched == batched
    assert sum(map(len, runner.apply(lambda r: r.sample(num_timesteps=20)))) >= 20
    answer = sent(runner.apply(lambda r: (r.sample(num_timesteps=1000), r.get_metrics())))
    with pytest.raises(RestartsSpent, match=r"env runner 2 on .*: engine 0 .* lost 3 times within 60 s") as caught:
        _ = answer[1]
    assert str(caught.value).endswith("GameError: the level could not be loaded")
    assert "More are allowed with restarts= (--restarts), such as 20/60s. It printed last" in str(caught.value)
    assert isinstance(runner.apply(lambda r: r.sample()), Failure)


def test_rllib_goes_on_without_a_runner_where_it_is_told_to() -> None:
    tolerance = {"restart_failed_env_runners": False, "ignore_env_runner_failures": True}
    runner = runner_of(chaos_command(fault="exit", after=10), env_config={"restarts": 0}, tolerance=tolerance)
    with pytest.raises(SystemExit):  # so a runner of RLlib's leaves
        runner.apply(lambda r: r.sample(num_timesteps=100))
    runner.stop()


def test_errors_that_are_not_ours_are_rllibs() -> None:
    runner = runner_of(chaos_command())
    with pytest.raises(SystemExit):
        runner.apply(lambda r: 1 / 0)
    runner.stop()
    with pytest.raises(ConfigurationError, match="Did you mean 'engine'"):
        len(runner_of(None, env_config={"engin": "x"}).apply(lambda r: r.sample()))
