#!/usr/bin/env bash
# PyTorch: the first optimizer of a process imports the compiler, and so does loading a policy that only acts.
#
# Guess: what `import torch` has not imported belongs to torch.compile(), and whoever compiles nothing never pays for it.
# Seen (torch 2.13.0, stable-baselines3 2.9.2): the first `torch.optim.Adam(..)` of a process imports torch._dynamo,
#   torch._inductor and SymPy, 800 modules and more, for one to four seconds of CPU, nearly as long as `import torch`
#   itself; the second imports nothing. PPO.load() builds an optimizer, too: a process that only calls predict() pays
#   as one that learns.
# Here: who only acts takes the exported ONNX file, which needs no torch at all.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore -c '
import gymnasium
from stable_baselines3 import PPO

PPO("MlpPolicy", gymnasium.make("CartPole-v1"), policy_kwargs={"net_arch": [8]}).save("model")
'
cat > counted.py <<'PY'
import sys
import time


def imported_by(step):
    """How many modules a step imports, and its seconds of CPU."""
    before = len(sys.modules)
    begun = time.process_time()
    step()
    return len(sys.modules) - before, round(time.process_time() - begun, 2)
PY
# Each twice: a first time also compiles what pip has not.
for _ in 1 2; do
  optimizers=$("$work/venv/bin/python" -W ignore -c '
import sys
from counted import imported_by
torch_itself = imported_by(lambda: __import__("torch"))
import torch
weights = torch.nn.Linear(2, 2).parameters()
first = imported_by(lambda: torch.optim.Adam(weights))
second = imported_by(lambda: torch.optim.Adam(torch.nn.Linear(2, 2).parameters()))
print(f"torch {torch.__version__}: modules and seconds of import torch {torch_itself}, first Adam {first}, second {second}")
assert first[0] > 400, "this has changed"
assert second[0] == 0, "this has changed"
assert {"torch._dynamo", "torch._inductor", "sympy"} <= set(sys.modules), "this has changed"
')
  loads=$("$work/venv/bin/python" -W ignore -c '
from counted import imported_by
import stable_baselines3
import sys
assert "torch._dynamo" not in sys.modules, "this has changed"
load = imported_by(lambda: stable_baselines3.PPO.load("model"))
print(f"stable-baselines3 {stable_baselines3.__version__}: PPO.load {load}")
assert load[0] > 400, "this has changed"
assert "torch._dynamo" in sys.modules, "this has changed"
')
done
echo "$optimizers"
echo "$loads"
