#!/usr/bin/env bash
# sb3-contrib: MaskablePPO plays any action where the mask allows none, and the worst as likely as the best.
#
# Guess: a mask without a legal action is an error, or NaN that is seen soon, or counts as no mask.
# Seen (sb3-contrib 2.9.2, torch 2.13.0): the distribution over logits 5, 0, 0 with all actions forbidden is even, a
#   third each: not the 0.99 of no mask. Its log-probability is finite, so that training goes on, with a policy for
#   this step that learned nothing.
# Here: a mask that allows nothing is refused where it arrives (MalformedMessage), as the protocol says.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  sb3-contrib==2.9.2 stable-baselines3==2.9.2 gymnasium==1.4.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import torch
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution


def probabilities(mask):
    distribution = MaskableCategoricalDistribution(3).proba_distribution(torch.tensor([[5.0, 0.0, 0.0]]))
    distribution.apply_masking(mask)
    return [round(share, 3) for share in distribution.distribution.probs[0].tolist()]


seen = probabilities(None), probabilities(np.array([[False, False, False]]))
print(f"sb3-contrib {version('sb3-contrib')}: without a mask {seen[0]}, with no legal action {seen[1]}")
assert seen == ([0.987, 0.007, 0.007], [0.333, 0.333, 0.333]), "this has changed"
PY
