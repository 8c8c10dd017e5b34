"""`ue-rl rllink` against a server that checks every episode."""

from __future__ import annotations

import pickle

from click.testing import CliRunner

from tests.harness.rllink_server import RLlinkServer
from tests.harness.several import Walk
from ue_rl.bridges.runners import run_in_thread
from ue_rl.cli import cli
from ue_rl.errors import LearnerUnreachable, UnsupportedNetwork
from ue_rl.spaces.actions import ActionSpec


def test_two_engines_play_as_one() -> None:
    with RLlinkServer(4, ActionSpec.discrete(3), steps_per_sample=60) as server:
        with run_in_thread(Walk(2)) as one, run_in_thread(Walk(3)) as two:
            words = ["rllink", "--port", str(server.port), "--url", one.url, "--url", two.url, "--steps", "150"]
            result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert server.mistakes == []
    assert len(server.batches) == 3
    lines = result.output.splitlines()
    assert lines[0].startswith("5 envs play for RLlib on 127.0.0.1:")
    assert "weights 2" in lines[-2]
    assert lines[-1] == "done"


def test_wrong_words() -> None:
    for words in ([], ["--env", "CartPole-v1", "--url", "tcp://127.0.0.1:1"], ["--engine", "x", "--timeout", "0"]):
        result = CliRunner().invoke(cli, ["rllink", *words])
        assert result.exit_code != 0
    with run_in_thread(Walk(1)) as engine:
        result = CliRunner().invoke(cli, ["rllink", "--port", "1", "--wait", "0", "--url", engine.url])
    assert isinstance(result.exception, LearnerUnreachable)


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
        words = ["rllink", "--port", str(server.port), "--url", engine.url, "--steps", "40"]
        refused = CliRunner().invoke(cli, words)
        assert isinstance(refused.exception, UnsupportedNetwork)
        assert "OwnCatalog" in str(refused.exception)
        assert server.batches == []
        result = CliRunner().invoke(cli, [*words, "--default-network"], catch_exceptions=False)
    assert result.exit_code == 0
    assert server.batches == [40]
    assert server.mistakes == []
