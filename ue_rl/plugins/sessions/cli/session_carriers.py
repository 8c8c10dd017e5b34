"""The carriers of `ue-rl sessions`: one table. A carrier is imported when its option is given."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from ue_rl.system.lazy import named_if_missing


class SessionCarrier(NamedTuple):
    """One carrier: an option --NAME PORT.

    Attributes:
        module: has `serve(pool, host, port, **options)`, which listens when it returns; what it returns has a `url`,
            and `close()` ends its threads, not the pool. With `stdio` also `StandardStreams`, made before the game
            is imported, and `serve_stdio(pool, streams)`, which returns when its client has gone.
        help: of the option. stdio: takes "stdio" in place of a port. options: of the command that `serve` takes;
            "access": a token and TLS, "allow_hosts": names in Host and Origin.
    """

    module: str
    help: str
    stdio: bool = False
    options: tuple[str, ...] = ()

    def load(self) -> Any:
        """Its module.

        Raises:
            MissingPackage: of its extra.
        """
        with named_if_missing(self.module):
            return importlib.import_module(self.module)


CARRIERS = {
    "tcp": SessionCarrier(
        "ue_rl.plugins.sessions.realtime.engine",
        "Port for trainers: sessions as the envs of an engine; shared memory is offered.",
        options=("num_envs", "ticks", "access"),
    ),
    "grpc": SessionCarrier(
        "ue_rl.plugins.sessions.grpc",
        "Port for gRPC: trainers (grpc://) and clients in real time.",
        options=("access",),
    ),
    "openenv": SessionCarrier(
        "ue_rl.plugins.sessions.openenv",
        "Port for clients of OpenEnv, over HTTP and WebSockets.",
        options=("access", "allow_hosts"),
    ),
    "mcp": SessionCarrier(
        "ue_rl.plugins.sessions.mcp",
        "Port for assistants, by MCP over HTTP; stdio: one that started this.",
        stdio=True,
        options=("access", "allow_hosts"),
    ),
}
