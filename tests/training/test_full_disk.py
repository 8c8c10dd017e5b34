"""A disk that is full costs rows, one warning, and no run."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli
from ue_rl.training.callbacks import EpisodeLog
from ue_rl.training.report import TrainingReport
from ue_rl.training.writing import Episodes, LogFile, WriteGuard

FULL = Path("/dev/full")  # every write fails with ENOSPC
needs_full = pytest.mark.skipif(not FULL.exists(), reason="Linux has it")

# RLIMIT_FSIZE: a file can't grow beyond 4 kB, as on a full disk; SB3 writes a row every 64 env-steps.
LEARN = """
import resource, sys
from pathlib import Path
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger, make_output_format
from ue_rl.training.tables import GuardedTable, quiet_tensorboard
said = []
folder = sys.argv[1]
tables = [GuardedTable(make_output_format(kind, folder), said.append) for kind in ("csv", "tensorboard")]
with quiet_tensorboard():
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1"), n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    model.set_logger(Logger(folder, tables))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))
    model.learn(2560)
    model.logger.close()
print(len(said), *said, sep="\\n")
"""


def test_learning_goes_on_on_a_full_disk(tmp_path: Path, warm_cli: WarmCli) -> None:
    done = warm_cli.run_script(LEARN, str(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    count, *said = done.stdout.splitlines()
    assert count == "2"
    assert said[0].startswith("TensorBoardOutputFormat cannot be written: ")
    assert said[1].startswith("CSVOutputFormat cannot be written: ")
    with (tmp_path / "progress.csv").open() as file:
        assert len(list(csv.reader(file))) > 5  # those that fitted are there


@needs_full
def test_episodes_that_cannot_be_written_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []

    class Shown(TrainingReport):
        def warned(self, text: str) -> None:
            said.append(text)

    episodes = Episodes(FULL, Shown(), 100)
    log = EpisodeLog(episodes)
    log.locals = {"infos": [{"episode": {"r": 1.0, "l": 2, "t": 3.0}}]}
    log.num_timesteps = 2
    for _ in range(3):
        assert log._on_step()
    episodes.close()
    assert (episodes.count, episodes.mean_return) == (3, 1.0)
    assert len(said) == 1
    assert "No space left on device" in said[0]


@needs_full
def test_a_log_that_cannot_be_written_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    handler = LogFile(FULL, said.append)
    for _ in range(3):
        handler.handle(logging.LogRecord("x", logging.INFO, __file__, 0, "hello", (), None))
    handler.close()
    assert len(said) == 1
    assert capsys.readouterr().err == ""


def test_a_guard_lets_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), WriteGuard("x", print):
        _ = 1 / 0
