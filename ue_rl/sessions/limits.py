"""What both sides of a gRPC connection agree on: sizes of messages, signs of life, when a client asks again."""

from __future__ import annotations

import json

import numpy as np

SERVICE = "ue_rl.v1.Sessions"
SESSION_ID = "session-id"  # metadata of Play
MAX_TICKS = 5000  # of one FastAdvance
MAX_CALLS = 4096  # that a server answers at once, a stream of Play among them; more get RESOURCE_EXHAUSTED
FLOAT = np.dtype("<f4")  # numbers of actions, observations and rewards

_MiB = 2**20
_RECEIVE, _SEND = 64 * _MiB, 16 * _MiB
_ALIVE = (  # a peer that is gone without a word is found out within 15 s
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
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


def server_options() -> list[tuple[str, int | str]]:
    """Options of a gRPC server."""
    return [
        ("grpc.max_receive_message_length", _RECEIVE),
        ("grpc.max_send_message_length", _SEND),
        ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        *_ALIVE,
    ]


def client_options() -> list[tuple[str, int | str]]:
    """Options of a gRPC channel; the limits are the server's, seen from the other side."""
    return [
        ("grpc.max_receive_message_length", _RECEIVE),
        ("grpc.max_send_message_length", _RECEIVE),
        ("grpc.service_config", json.dumps(_RETRIES)),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: its loss is this client's alone
        *_ALIVE,
    ]
