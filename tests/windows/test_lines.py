"""Lines of text as the compiled module reads and writes them, on Windows: the golden vectors, under Wine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.protocol.text import test_golden_vectors as golden
from tests.windows import wine
from tests.windows.far_kernels import FarKernels
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec

pytestmark = wine.MARKS

TEXT = wine.ROOT / "ue_rl" / "protocol" / "text"


@pytest.fixture(scope="module")
def far() -> Iterator[FarKernels]:
    headers = [TEXT / "_lines.h", TEXT / "_float_text.h"]
    with wine.start(wine.program(Path(__file__).with_name("lines.c"), reads=headers)) as process:
        yield FarKernels(process)
        process.communicate()
    assert process.returncode == 0


@pytest.fixture
def compiled(far: FarKernels) -> FarKernels:
    """What the golden vectors' tests give to a Codec, which then asks the process."""
    return far


test_reply_decodes = golden.test_reply_decodes
test_reply_encodes = golden.test_reply_encodes
test_request_decodes_and_encodes = golden.test_request_decodes_and_encodes
test_message_is_refused = golden.test_message_is_refused


def test_numbers_are_the_same_to_the_bit(far: FarKernels) -> None:
    """Any float32 there is, written here and there; and texts that only a correct rounding tells apart."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (64, 400), dtype=np.uint64).astype(np.uint32).view(np.float32)
    rows = np.where(np.isfinite(bits), bits, np.float32(1.5))
    spec = EnvSpec(400, 1, num_envs=64)
    zeros = np.zeros(64, np.uint8)
    here = Codec(spec, compiled=True)
    there = Codec(spec, kernels=far)
    line = here.encode_states(rows, np.zeros(64, np.float32), zeros, zeros)
    assert there.encode_states(rows, np.zeros(64, np.float32), zeros, zeros) == line

    halves = (rows[0, :200].astype(np.float64) + np.nextafter(rows[0, :200], np.float32(np.inf)).astype(np.float64)) / 2
    texts = [f"{value:.60f}"[:120] for value in np.clip(halves, -1e30, 1e30)]
    texts += [f"{value:.25e}" for value in halves]
    long = ("||".join(f"OBS={','.join(texts)};REW={texts[env]};DONE=0;ENV={env}" for env in range(64))).encode()
    read = []
    for codec, data in ((here, line), (there, line), (here, long), (there, long)):
        buffers = StepBuffers.of(spec)
        buffers.pending[:] = 1
        assert codec.decode_states(data, buffers) == 64
        read.append((buffers.obs.tobytes(), buffers.rewards.tobytes()))
    assert read[0] == read[1]
    assert read[0][0] == rows.tobytes()
    assert read[2] == read[3]
