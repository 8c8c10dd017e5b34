#!/usr/bin/env bash
# MLflow: of a log_metrics with one name that it refuses, nothing is stored.
#
# Guess: log_metrics is log_metric for each; if `reward[0]` is refused, the metrics before it are there, and so are
#   those that are logged in the next step under good names.
# Seen (mlflow-skinny 3.17.2): MlflowException names `reward[0]` alone; `loss`, which stands before it, is not stored
#   either, in files and in SQLite. A caller that logs the same names each step and catches the error has an empty run.
# Here: names are made of what MLflow takes first, and what it refuses all the same is sent one by one.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1
cd "$work"
export MLFLOW_ALLOW_FILE_STORE=true
"$work/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import os

import mlflow

seen = []
for store in (f"file:{os.getcwd()}/files", f"sqlite:///{os.getcwd()}/runs.db"):
    mlflow.set_tracking_uri(store)
    mlflow.set_experiment("names")
    with mlflow.start_run() as run:
        for names in (("loss", "reward[0]"), ("loss", "reward/0")):
            try:
                mlflow.log_metrics(dict.fromkeys(names, 1.0))
                told = "stored"
            except mlflow.exceptions.MlflowException as error:
                told = "refused " + str(error).split('"')[1]
            found = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
            seen.append((told, sorted(found)))
print(f"mlflow {mlflow.__version__}: {seen}")
if seen != [("refused reward[0]", []), ("stored", ["loss", "reward/0"])] * 2:
    raise SystemExit("this has changed")
PY
