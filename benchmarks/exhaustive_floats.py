"""Writes and reads back every finite float32 there is, bit for bit. About ten minutes on one core.

python benchmarks/exhaustive_floats.py [--every N]   tests every Nth only
"""

from __future__ import annotations

import argparse

import numpy as np

from ue_rl.protocol.text import _kernels as module
from ue_rl.protocol.text.kernel_forms import FORM_SINGLE


def main() -> None:
    """Counts what does not come back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    chunk, ids = 1 << 20, np.zeros(1, np.int32)
    tested = wrong = 0
    for start in range(0, 1 << 32, chunk * every):
        bits = np.arange(start, min(start + chunk * every, 1 << 32), every, dtype=np.uint64).astype(np.uint32)
        values = bits.view(np.float32)
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        line = module.encode_actions(ids, values.reshape(1, -1), None, FORM_SINGLE, False)
        back = np.zeros((1, len(values)), np.float32)
        state = np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros((1, 4), np.int32)
        assert module.decode_requests(line, back, *state, None, 0, len(line) - 1, FORM_SINGLE, -1) == 1
        wrong += int((back[0].view(np.uint32) != values.view(np.uint32)).sum())
        tested += len(values)
    print(f"{tested:,} values, {wrong} came back different")


if __name__ == "__main__":
    main()
