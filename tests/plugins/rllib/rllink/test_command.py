"""`ue-rl rllink` against a server that checks every episode."""

from __future__ import annotations

import pickle

import pytest

from tests.harness.several import Walk
from tests.plugins.rllib.rllink.server import RLlinkServer
from tests.support.command_line import ok, refused, run
from ue_rl.bridges.runners import run_in_thread
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.system.errors import LearnerUnreachable, UnsupportedNetwork


def test_two_engines_play_as_one() -> None:
    with RLlinkServer(4, ActionSpec.discrete(3), steps_per_sample=60) as server:
        with run_in_thread(Walk(2)) as one, run_in_thread(Walk(3)) as two:
            output = ok(f"rllink --port {server.port} --steps 150 --url {one.url} --url {two.url}")
    assert server.mistakes == []
    assert len(server.batches) == 3
    lines = output.splitlines()
    assert lines[0].startswith("5 envs play for RLlib on 127.0.0.1:")
    assert "weights 2" in lines[-2]
    assert lines[-1] == "done"


def test_wrong_words() -> None:
    for words in ("", "--env CartPole-v1 --url tcp://127.0.0.1:1", "--engine x --timeout 0"):
        assert run(f"rllink {words}").exit_code != 0
    with run_in_thread(Walk(1)) as engine:
        refused("rllink --port 1 --wait 0 --url", engine.url, by=LearnerUnreachable)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--url tcp://127.0.0.1:1 --num-envs 3", "num_envs"),
        ("--url tcp://127.0.0.1:1 --num-engines 3", "num_engines"),
        ("--engine 'x {port}' --env-kwargs '{\"a\": 1}'", "env_kwargs"),
    ],
)
def test_a_flag_that_would_have_no_effect_is_refused(words: str, field: str) -> None:
    result = run(f"rllink {words}")
    assert result.exit_code != 0
    assert field in f"{result.output} {result.exception}"
    assert "listens" not in str(result.exception)


class OwnCatalog:
    """Stands in a config."""


class Config:
    """As RLlib's AlgorithmConfig: an object with a state."""

    def __init__(self) -> None:
        spec = Config.__new__(Config)
        spec.__dict__["catalog_class"] = OwnCatalog
        self.__dict__.update(_rl_module_spec=spec, train_batch_size=40)


def test_own_classes_need_a_word() -> None:
    pickled = pickle.dumps(Config())
    with run_in_thread(Walk(2)) as engine, RLlinkServer(4, ActionSpec.discrete(3), 40, config_pickle=pickled) as server:
        words = f"rllink --port {server.port} --steps 40 --url {engine.url}"
        assert "OwnCatalog" in str(refused(words, by=UnsupportedNetwork))
        assert server.batches == []
        ok(words, "--default-network")
    assert server.batches == [40]
    assert server.mistakes == []
