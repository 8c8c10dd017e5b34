#!/usr/bin/env bash
# gRPC: a client that asks each second, and waits a second for the answer, takes one to two minutes to notice.
#
# Guess: with keepalive_time_ms=1000 and keepalive_timeout_ms=1000 an open stream of a server that stands still (a game
#   in a debugger, a machine that sleeps) ends after two seconds.
# Seen (grpcio 1.85.3): after 61 s. What is waited for is http2.ping_timeout_ms, 60 s by default, whatever the other
#   one says. And where no data has passed for a few seconds, a ping is sent only once a minute: such a stream ended
#   54 to 113 s after. With http2.ping_timeout_ms=1000 and http2.max_pings_without_data=0 it is one to two seconds.
# Here: client and server of the gRPC carrier set all of them (ue_rl/plugins/sessions/limits.py).
# Takes two minutes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" grpcio==1.85.3
cd "$work"
cat > server.py <<'PY'
import time
from concurrent import futures

import grpc


class Game(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_stream_rpc_method_handler(self.play)

    def play(self, request, context):
        yield b"the first observation"
        time.sleep(600)


often = [("grpc.http2.min_ping_interval_without_data_ms", 100)]  # else it refuses a ping each second
server = grpc.server(futures.ThreadPoolExecutor(4), options=often)
server.add_generic_rpc_handlers((Game(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
PY
cat > client.py <<'PY'
import os
import signal
import subprocess
import sys
import threading
import time

import grpc

ASKS = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 1000)]
WAITS = [("grpc.http2.ping_timeout_ms", 1000)]
ALWAYS = [("grpc.http2.max_pings_without_data", 0)]
CASES = {
    "asks each second": (ASKS, 0),
    "and waits a second, behind 8 s of silence": ([*ASKS, *WAITS], 8),
    "and pings without data": ([*ASKS, *WAITS, *ALWAYS], 8),
}
took = {}


def watch(name, options, silence):
    with subprocess.Popen([sys.executable, "server.py"], stdout=subprocess.PIPE, text=True) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.stdout.readline().strip()}", options=options) as channel:
            observations = channel.unary_stream("/game/play")(b"")
            next(observations)
            time.sleep(silence)
            os.kill(server.pid, signal.SIGSTOP)
            began = time.monotonic()
            try:
                next(observations)
            except grpc.RpcError as error:
                took[name] = time.monotonic() - began
                print(f"grpcio {grpc.__version__}, {name}: {took[name]:.0f} s, {error.code().name}", flush=True)
        server.kill()


threads = [threading.Thread(target=watch, args=(name, *case)) for name, case in CASES.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
first, second, third = (took[name] for name in CASES)
sys.exit(not (first > 30 and second > 30 and third < 15))
PY
"$work/venv/bin/python" client.py || { echo "this has changed"; exit 1; }
