"""A trial of a search without learning: python fake_trial.py CONFIG. It earns more with a greater learning rate.

`batch_size` 13: it dies by SIGKILL; 14: it exits with 1; 15: it stands still in its middle. `seed` 99: it never ends.
"""

import json
import os
import sys
import time
from pathlib import Path

import yaml

if __name__ == "__main__":
    options = yaml.safe_load(Path(sys.argv[1]).read_text("utf-8"))
    hyper = options["hyperparameters"]
    if hyper.get("batch_size") == 13:
        os.kill(os.getpid(), 9)
    if hyper.get("batch_size") == 14:
        print("no such batch", file=sys.stderr)
        sys.exit(1)
    run = Path(options["log_dir"]) / options["run_id"]
    run.mkdir()
    value = 1e4 * hyper.get("learning_rate", 1e-3)
    with (run / "episodes.csv").open("w", buffering=1) as file:
        file.write("env_steps,return,length,seconds\n")
        for step in range(0, options["timesteps"] + 1, 100):
            file.write(f"{step},{value * step / options['timesteps']},100,0.1\n")
            if step == 500 and hyper.get("batch_size") == 15:
                time.sleep(60)
    while options["seed"] == 99:
        time.sleep(0.1)
    outcome = {"mean_return": value, "evaluation": None}
    (run / "outcome.json").write_text(json.dumps(outcome), "utf-8")
