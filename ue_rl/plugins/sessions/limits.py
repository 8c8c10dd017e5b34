"""What both sides of a gRPC connection agree on: sizes of messages, signs of life, when a client asks again."""

from __future__ import annotations

import json

import numpy as np

SERVICE = "ue_rl.v1.Sessions"
SESSION_ID = "session-id"  # metadata of Play
# more of it: each is sent when the client asks for one
OBSERVATIONS = "observations"
ASKED = "asked"
MAX_TICKS = 5000  # of one FastAdvance
MAX_CALLS = 4096  # that a server answers at once, a stream of Play among them; more get RESOURCE_EXHAUSTED
FLOAT = np.dtype("<f4")  # numbers of actions, observations and rewards

_MiB = 2**20
_RECEIVE = 64 * _MiB
_SEND = 16 * _MiB
_PINGS = (  # either side may ask for signs of life at any time
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_NEVER = 2**31 - 1  # milliseconds: gRPC's own word for it
# milliseconds
_ASKS_EVERY = 30_000
_PATIENCE = 300_000
# A server whose queue is full says RESOURCE_EXHAUSTED; gRPC itself asks again, five times at most.
_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": SERVICE}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "10s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


def server_options(watched: bool, asks_every: float | None = None) -> list[tuple[str, int | str]]:
    """Options of a gRPC server.

    Args:
        watched: somebody else finds out who has vanished (ue_rl/system/vanished.py). Then the server asks for no signs
            of life: a client whose event loop is busy (all of Node's are one) could not give any, and would lose its
            session. False: it asks, and waits for as long as sessions usually may be idle.
        asks_every: seconds; it asks in any case, and waits for as long.
    """
    pings = [("grpc.keepalive_time_ms", _NEVER)]  # which also keeps gRPC from a TCP_USER_TIMEOUT of its own
    if asks_every is not None:
        pings = _questions(int(1000 * asks_every), int(1000 * asks_every))
    elif not watched:
        pings = _questions(_ASKS_EVERY, _PATIENCE)
    return [
        ("grpc.max_receive_message_length", _RECEIVE),
        ("grpc.max_send_message_length", _SEND),
        ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        *pings,
        *_PINGS,
    ]


def _questions(every: int, patience: int) -> list[tuple[str, int]]:
    """Options for signs of life; both in milliseconds."""
    return [
        ("grpc.keepalive_time_ms", every),
        ("grpc.keepalive_timeout_ms", patience),
        ("grpc.http2.ping_timeout_ms", patience),
    ]


def client_options() -> list[tuple[str, int | str]]:
    """Options of a gRPC channel; the limits are the server's, seen from the other side."""
    return [
        ("grpc.max_receive_message_length", _RECEIVE),
        ("grpc.max_send_message_length", _RECEIVE),
        ("grpc.service_config", json.dumps(_RETRIES)),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: its loss is this client's alone
        # A server that is gone without a word is found out within 15 s. Threads of gRPC ask and hear, whatever the
        # caller's are doing; the server's answer.
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        *_PINGS,
    ]
