#!/usr/bin/env bash
# Minari: observations that look like pictures are stored as JPEG, by default and by their size.
#
# Guess: a dataset gives back the uint8 numbers that went into it: HDF5 keeps arrays as they are.
# Seen (minari 0.5.4, pillow 13.0.0): random rows of 64 x 64 x 3 come back wrong by up to 239 of 255, of 84 x 84 by
#   more than 30; 8 x 8 x 3 and 3 x 84 x 84 are exact, and 84 x 84 x 1 raises TypeError. A map of tile numbers that is
#   large enough is a picture, too: its tiles become other tiles.
# Here: recordings are written with jpeg_encoding=False, and refused for a Minari that knows no such argument.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  "minari[hdf5]==0.5.4" h5py==3.16.0 gymnasium==1.4.0 pillow==13.0.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import os

os.environ["MINARI_DATASETS_PATH"] = os.path.join(os.getcwd(), "datasets")

import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

random = np.random.default_rng(0)


def error(*shape):
    """The greatest difference of what is read from what was written."""
    rows = random.integers(0, 256, (4, *shape)).astype(np.uint8)
    ends = np.array([False, False, True])
    episode = EpisodeBuffer(
        id=0,
        observations=rows,
        actions=np.zeros(3, np.int64),
        rewards=np.zeros(3),
        terminations=ends,
        truncations=np.zeros(3, bool),
    )
    name = f"pictures/of{len(os.listdir(os.environ['MINARI_DATASETS_PATH']))}{'x'.join(map(str, shape))}-v0"
    try:
        minari.create_dataset_from_buffers(
            name,
            [episode],
            observation_space=gymnasium.spaces.Box(0, 255, shape, np.uint8),
            action_space=gymnasium.spaces.Discrete(2),
        )
    except TypeError as refused:
        return type(refused).__name__
    return int(np.abs(minari.load_dataset(name)[0].observations.astype(int) - rows).max())


os.makedirs(os.environ["MINARI_DATASETS_PATH"])
seen = {shape: error(*shape) for shape in ((64, 64, 3), (84, 84), (8, 8, 3), (3, 84, 84), (84, 84, 1))}
print(f"minari {minari.__version__}: greatest differences {seen}")
assert seen[64, 64, 3] > 200 and seen[84, 84] > 30, "this has changed"
assert (seen[8, 8, 3], seen[3, 84, 84], seen[84, 84, 1]) == (0, 0, "TypeError"), "this has changed"
PY
