#!/usr/bin/env bash
# onnxruntime on Linux: an import makes an id of the machine and a database of events to be sent, and the call that
# switches this off comes after it.
#
# Guess: a library that computes offline reports nothing, or on Windows alone, as its documents said for years; and who
#   does not like it calls `onnxruntime.disable_telemetry_events()` first.
# Seen (onnxruntime 1.28.0 and 1.32.0 from PyPI, Linux x86-64, Python 3.11): 1.28.0 leaves no file in HOME. 1.32.0, by
#   `import onnxruntime` alone, writes ~/.cache/Microsoft/DeveloperTools/.onnxruntime/deviceid and an SQLite database
#   beside it, whose first event, ProcessInfo, has processor, operating system, kind of virtual machine and the path of
#   the program; with disable_telemetry_events() behind the import, too. With ORT_DISABLE_TELEMETRY=1 in the environment
#   before the import nothing is written. (Where variables such as CI are set, nothing is written either.)
# Here: ue_rl sets that variable before it imports onnxruntime, unless it is set already; samples/deploy do so in C++
#   and C#; docs/deploy.md says it to everybody else who ships the library in a game.
# What is run here can send such an event where there is a network: the proxy below leads nowhere.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 1.28.0 1.32.0; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install -q --disable-pip-version-check "onnxruntime==$version" numpy==2.4.6
done
left() { # VERSION CODE [NAME=VALUE]: the files and the first event that a process leaves in a home of its own
  rm -rf "$work/home"
  mkdir "$work/home"
  env -i PATH="$PATH" HOME="$work/home" https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 "${@:3}" \
    "$work/$1/bin/python" -c "$2"
  echo "$1 ${*:3}: $2"
  (cd "$work/home" && find . -type f | sed 's/.*\///; s/-wal$//; s/-shm$//' | sort -u)
  "$work/$1/bin/python" - "$work/home" <<'PY'
import pathlib
import re
import sqlite3
import sys

for path in pathlib.Path(sys.argv[1]).rglob("*.db"):
    for (payload,) in sqlite3.connect(path).execute("SELECT payload FROM events"):
        told = [name for name in (b"ProcessInfo", b"cpuModel", b"osDescription", b"virtualizationType") if name in payload]
        print(b" ".join(told).decode(), "and the program" if re.search(rb"/bin/python", payload) else "")
PY
}
{
  left 1.28.0 'import onnxruntime'
  left 1.32.0 'import onnxruntime'
  left 1.32.0 'import onnxruntime; onnxruntime.disable_telemetry_events()'
  left 1.32.0 'import onnxruntime' ORT_DISABLE_TELEMETRY=1
} | tee "$work/out"
expected='1.28.0 : import onnxruntime
1.32.0 : import onnxruntime
deviceid
onnxruntime.db
ProcessInfo cpuModel osDescription virtualizationType and the program
1.32.0 : import onnxruntime; onnxruntime.disable_telemetry_events()
deviceid
onnxruntime.db
ProcessInfo cpuModel osDescription virtualizationType and the program
1.32.0 ORT_DISABLE_TELEMETRY=1: import onnxruntime'
test "$(cat "$work/out")" = "$expected" || { echo "this has changed; expected: $expected"; exit 1; }
