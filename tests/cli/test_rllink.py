"""`ue-rl rllink` against a server that checks every episode."""

from __future__ import annotations

from click.testing import CliRunner

from ue_rl.action_spec import ActionSpec
from ue_rl.bridges.runners import run_in_thread
from ue_rl.cli import cli
from ue_rl.errors import LearnerUnreachable
from ue_rl.testing import RLlinkServer
from ue_rl.testing.several import Walk


def test_two_engines_play_as_one() -> None:
    with RLlinkServer(4, ActionSpec.discrete(3), steps_per_sample=60) as server:
        with run_in_thread(Walk(2)) as one, run_in_thread(Walk(3)) as two:
            words = ["rllink", "--port", str(server.port), "--connect", one.url, "--connect", two.url, "--steps", "150"]
            result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert server.mistakes == []
    assert len(server.batches) == 3
    lines = result.output.splitlines()
    assert lines[0].startswith("5 envs play for RLlib on 127.0.0.1:")
    assert "weights 2" in lines[-2]
    assert lines[-1] == "done"


def test_wrong_words() -> None:
    for words in ([], ["--env", "CartPole-v1", "--connect", "tcp://127.0.0.1:1"], ["--engine", "x", "--timeout", "0"]):
        result = CliRunner().invoke(cli, ["rllink", *words])
        assert result.exit_code != 0
    with run_in_thread(Walk(1)) as engine:
        result = CliRunner().invoke(cli, ["rllink", "--port", "1", "--wait", "0", "--connect", engine.url])
    assert isinstance(result.exception, LearnerUnreachable)
