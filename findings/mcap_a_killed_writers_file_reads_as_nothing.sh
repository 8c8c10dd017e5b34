#!/usr/bin/env bash
# MCAP: of a recording whose writer was killed, make_reader() gives no message at all, although all of them are there.
#
# Guess: the file is a row of chunks, each with its length and its checksum, so a reader gives those that were flushed,
#   and then says that the end is missing.
# Seen (mcap 1.6.0): ten chunks were flushed and the file was never finished. make_reader(file).iter_messages() looks
#   for the summary at the end, takes other bytes for it, and raises RecordLengthLimitExceeded or EndOfFile, by the
#   bytes that happen to stand there. NonSeekingReader raises EndOfFile before the first message, because it sorts them
#   all by their time. With log_time_order=False it gives every message, and then raises EndOfFile.
# Here: recordings have a form of their own, whose reader gives what is whole and names where it ends.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check mcap==1.6.0 lz4==4.4.5 zstandard==0.25.0
cd "$work"
"$work/venv/bin/python" - <<'PY'
from importlib.metadata import version

from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader, make_reader
from mcap.writer import Writer


def recorded(finished):
    """A hundred messages in ten chunks."""
    name = f"{finished}.mcap"
    with open(name, "wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("steps", "json", 0)
        for number in range(100):
            writer.add_message(channel, number, b'{"reward": 1}', number)
            if number % 10 == 9:
                writer.flush()
        if finished:
            writer.finish()
    return name


def read(name, reader, **options):
    """(how many messages came, the error behind them)"""
    count = 0
    with open(name, "rb") as file:
        try:
            for _ in reader(file).iter_messages(**options):
                count += 1
        except McapError as error:
            return count, type(error).__name__
    return count, ""


print(f"mcap {version('mcap')}")
seen = {}
for finished in (True, False):
    name = recorded(finished)
    whole = read(name, make_reader)
    sorted_ = read(name, NonSeekingReader)
    unsorted = read(name, NonSeekingReader, log_time_order=False)
    print(f"finished {finished}: make_reader {whole}, NonSeekingReader {sorted_}, in the file's order {unsorted}")
    seen[finished] = whole[0], bool(whole[1]), sorted_, unsorted
assert seen[True] == (100, False, (100, ""), (100, "")), "this has changed"
assert seen[False] == (0, True, (0, "EndOfFile"), (100, "EndOfFile")), "this has changed"
PY
