#!/usr/bin/env bash
# Minari: a dataset whose Dict has a key such as "arm/left" is written without a word and cannot be read.
#
# Guess: keys of a gymnasium.spaces.Dict are any strings, so either writing refuses this one or reading gives it back.
# Seen (minari 0.5.4, h5py 3.16.0, gymnasium 1.4.0): create_dataset_from_buffers succeeds; the first episode that is read
#   raises KeyError: 'arm', because in HDF5 a name with a slash is a path: a group `arm` with `left` in it.
# Here: recorded keys are percent-encoded in the file, and a recording's own files go only after it was read back.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  "minari[hdf5]==0.5.4" h5py==3.16.0 gymnasium==1.4.0 pillow==13.0.0
export MINARI_DATASETS_PATH=$work/datasets
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
rows = np.zeros((4, 2), np.float32)
ends = np.array([False, False, True])
seen = {}
for key in ("arm", "arm/left"):
    episode = EpisodeBuffer(
        id=0,
        observations={key: rows},
        actions=np.zeros(3, np.int64),
        rewards=np.zeros(3),
        terminations=ends,
        truncations=np.zeros(3, bool),
    )
    name = f"slash/{key.replace('/', '-')}-v0"
    minari.create_dataset_from_buffers(
        name,
        [episode],
        observation_space=gymnasium.spaces.Dict({key: box}),
        action_space=gymnasium.spaces.Discrete(2),
    )
    try:
        seen[key] = sorted(minari.load_dataset(name)[0].observations)
    except KeyError as error:
        seen[key] = f"KeyError: {error}"
print(f"minari {minari.__version__}: {seen}")
assert seen == {"arm": ["arm"], "arm/left": "KeyError: 'arm'"}, "this has changed"
PY
