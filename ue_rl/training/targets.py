"""Where a run's numbers go beside progress.csv: TensorBoard, Weights & Biases, MLflow, as tables of SB3's logger.

A resumed run goes on in the same run of the service: `log-targets.json` in its folder has the ids.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import numbers
import os
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter, filter_excluded_keys

from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.kinds import log_targets
from ue_rl.training.options import TrainOptions

IDS = "log-targets.json"
_PROJECT = "ue_rl"  # where the environment names none: WANDB_PROJECT, MLFLOW_EXPERIMENT_NAME
_MOST = 1000  # metrics in a request, which MLflow allows
# A colon is taken too, but neither on Windows nor by its older versions.
_NOT_MLFLOWS = re.compile(r"[^\w. \-]")
_LONGEST = 240  # characters of a name; MLflow takes 250, and a second one of the same name has 9 more


def targets_of(options: TrainOptions, folder: Path) -> list[KVWriter]:
    """The tables of `log_to` but TensorBoard's, opened; `folder`: of the run.

    Raises:
        ConfigurationError: a service refuses.
    """
    make: dict[str, Callable[[TrainOptions, Path, str | None], _Service]] = {"wandb": _Wandb, "mlflow": _Mlflow}
    ids: dict[str, str]
    if (folder / IDS).exists():
        ids = json.loads((folder / IDS).read_text("utf-8"))
    else:
        ids = {}
    tables: list[KVWriter] = []
    for name in log_targets(options.log_to):
        if name in make:
            try:
                table = make[name](options, folder, ids.get(name))
            except Exception as error:
                cure = f"check how {name} is set up here, or leave it out of --log-to"
                raise ConfigurationError(f"{name} cannot be used", field="log_to", got=error, cure=cure) from error
            tables.append(table)
            ids[name] = table.id
    if tables:
        write_whole(folder / IDS, lambda path: path.write_text(json.dumps(ids), "utf-8"))
    return tables


def mlflow_name(key: str) -> str:
    """`key` as MLflow takes it: letters, digits, spaces and `_-./`, and not too long."""
    # MLflow keeps some metrics as files: their names must be what os.path.normpath makes of them.
    parts = [_NOT_MLFLOWS.sub("_", part).strip(" .") for part in key.split("/")]
    return "/".join(filter(None, parts))[:_LONGEST].rstrip("/ .") or "_"


class _Service(KVWriter):
    """A table that is somewhere else: what fails there is an OSError, which costs rows and not the run.

    Attributes:
        id: of the run there.
    """

    id: str

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Sends the numbers among the values, at the env-step `step`."""
        values = filter_excluded_keys(key_values, key_excluded, "tensorboard")
        found = {key: float(value) for key, value in values.items() if isinstance(value, numbers.Real)}
        with _as_os_errors():
            self._send(found, step)

    def close(self) -> None:
        """Nothing is sent afterwards."""
        with _as_os_errors():
            self._finish()

    def _send(self, values: dict[str, float], step: int) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class _Wandb(_Service):
    """By its own rules: WANDB_MODE=offline keeps the run in its folder, and `wandb sync` sends it later."""

    def __init__(self, options: TrainOptions, folder: Path, known: str | None) -> None:
        import wandb

        self.id = known or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=self.id,
            resume="allow",
            name=folder.name,
            dir=str(folder),
            config=vars(options),
            reinit="create_new",
        )
        # Not W&B's own step, which never goes back: a run that was killed computes a part of its steps again.
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def _send(self, values: dict[str, float], step: int) -> None:
        self._run.log({**values, "env_steps": step})

    def _finish(self) -> None:
        self._run.finish()


class _Mlflow(_Service):
    """By its own rules: MLFLOW_TRACKING_URI says where, a file without it.

    One name that MLflow does not take costs it the whole request, so each is sent as `mlflow_name` has it. What it
    refuses all the same goes one by one.
    """

    def __init__(self, options: TrainOptions, folder: Path, known: str | None) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient()
        self._names: dict[str, str] = {}  # key -> what it is called there
        if known is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
            found = self._client.get_experiment_by_name(name)
            if found is None:
                experiment = self._client.create_experiment(name)
            else:
                experiment = found.experiment_id
            known = self._client.create_run(experiment, run_name=folder.name).info.run_id
            params = [Param(key, str(value)[:500]) for key, value in vars(options).items()]
            self._client.log_batch(known, params=params)
        else:
            self._client.update_run(known, status="RUNNING")
        self.id = str(known)

    def _send(self, values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(self._name(key), value, now, step) for key, value in values.items()]
        for begin in range(0, len(metrics), _MOST):
            self._log(metrics[begin : begin + _MOST])

    def _log(self, metrics: list[Any]) -> None:
        """Raises what the service raises; of several metrics one that is refused costs none of the others."""
        try:
            self._client.log_batch(self.id, metrics=metrics)
        except Exception as error:
            if len(metrics) == 1 or getattr(error, "error_code", "") != "INVALID_PARAMETER_VALUE":
                raise
            refused: Exception | None = None
            for metric in metrics:
                try:
                    self._log([metric])
                except Exception as each:  # noqa: BLE001 - it is raised below
                    refused = refused or each
            if refused is not None:
                raise refused from error

    def _name(self, key: str) -> str:
        """What a key is called there: never as another one."""
        if key not in self._names:
            name = mlflow_name(key)
            if name in self._names.values():
                name = f"{name}_{zlib.crc32(key.encode()):08x}"
            self._names[key] = name
        return self._names[key]

    def _finish(self) -> None:
        self._client.set_terminated(self.id)
