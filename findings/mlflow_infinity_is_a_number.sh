#!/usr/bin/env bash
# MLflow: a metric that is infinite comes back as 1.7976931348623157e+308, and -0.0 as 0.0, by where it is stored.
#
# Guess: log_metric keeps a double, or refuses what its store cannot hold; the store changes nothing but the place.
# Seen (mlflow-skinny 3.17.2, sqlalchemy 2.1.9): the files' store gives inf, -inf, nan and -0.0 back; SQLite gives plus
#   and minus the greatest double, nan, and 0.0. Means and plots then take 1.8e308 for a measured value.
# Here: a run's progress.csv has the number itself; what MLflow shows as 1.8e308 was inf.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1
cd "$work"
export MLFLOW_ALLOW_FILE_STORE=true
"$work/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import math
import os

import mlflow

seen = []
for store in (f"file:{os.getcwd()}/files", f"sqlite:///{os.getcwd()}/runs.db"):
    mlflow.set_tracking_uri(store)
    mlflow.set_experiment("numbers")
    with mlflow.start_run() as run:
        for name, value in {"inf": math.inf, "minus": -math.inf, "nan": math.nan, "zero": -0.0}.items():
            mlflow.log_metric(name, value)
    metrics = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
    seen.append([str(metrics[name]) for name in ("inf", "minus", "nan", "zero")])
print(f"mlflow {mlflow.__version__}: in files {seen[0]}, in SQLite {seen[1]}")
greatest = "1.7976931348623157e+308"
expected = [["inf", "-inf", "nan", "-0.0"], [greatest, "-" + greatest, "nan", "0.0"]]
if seen != expected:
    raise SystemExit("this has changed")
PY
