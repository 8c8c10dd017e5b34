#!/usr/bin/env bash
# Optuna: a study that is taken up again with the same seed tries the same parameters again.
#
# Guess: a stored study goes on where it stopped, its seeded sampler too: that is what the storage is for.
# Seen (optuna 5.0.0): 5 trials, a new process, 5 more with TPESampler(seed=0): trials 5 to 9 have the parameters of 0
#   to 4 to the last bit, and are evaluated again. RandomSampler does the same. The storage holds trials, not the
#   sampler's random numbers. Nothing is said.
# Here: a search that goes on seeds its sampler with the seed and the number of trials so far.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" optuna==5.0.0
cd "$work"
cat > search.py <<'PY'
import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)
for sampler in (optuna.samplers.TPESampler, optuna.samplers.RandomSampler):
    study = optuna.create_study(
        study_name=sampler.__name__, storage="sqlite:///studies.db", sampler=sampler(seed=0), load_if_exists=True
    )
    study.optimize(lambda trial: trial.suggest_float("rate", 0, 1), n_trials=5)
    rates = [trial.params["rate"] for trial in study.trials]
    again = rates[5:] == rates[:5]
    print(f"optuna {optuna.__version__}, {study.study_name}: {[round(rate, 3) for rate in rates]} again: {again}")
PY
"$work/venv/bin/python" search.py
"$work/venv/bin/python" search.py | tee out
test "$(grep -c "again: True" out)" = 2 || { echo "this has changed"; exit 1; }
