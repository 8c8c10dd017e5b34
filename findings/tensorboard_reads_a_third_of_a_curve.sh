#!/usr/bin/env bash
# TensorBoard: what reads an events file back gives 10 000 values of a curve, drawn by lot.
#
# Guess: EventAccumulator(folder).Reload().Scalars(tag) gives what was written, as the usual scripts for plots take it.
# Seen (tensorboard 2.21.0): of 30 000 values 10 000 come back, the last one among them and the first not: those that
#   were kept are a random sample, the same in each reading. size_guidance={"scalars": 0} gives all 30 000. So the sum
#   of the episodes' rewards, the step of the maximum and the first steps are wrong for long runs and right for short
#   ones.
# Here: a run's numbers are read from its progress.csv and episodes.csv, not from TensorBoard's file.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  tensorboard==2.21.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import tempfile

import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

folder = tempfile.mkdtemp(dir=".")
writer = EventFileWriter(folder)
for step in range(30_000):
    value = Summary.Value(tag="reward", simple_value=1.0)
    writer.add_event(Event(step=step, summary=Summary(value=[value])))
writer.close()
steps = [event.step for event in EventAccumulator(folder).Reload().Scalars("reward")]
again = [event.step for event in EventAccumulator(folder).Reload().Scalars("reward")]
everything = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload().Scalars("reward")
seen = len(steps), steps[-1], again == steps, len(everything)
print(f"tensorboard {tensorboard.__version__}: values, last step, again the same, with size_guidance: {seen}; "
      f"the first steps are {steps[:4]}")
assert seen == (10_000, 29_999, True, 30_000) and steps[:4] != [0, 1, 2, 3], "this has changed"
PY
