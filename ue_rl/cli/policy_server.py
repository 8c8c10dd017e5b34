"""`ue-rl policy-server`: serves an ONNX policy to engines that cannot run it themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import click

from ue_rl.errors import ConfigurationError


@click.command("policy-server", short_help="Serve a policy to engines.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=7778, show_default=True, help="0 takes a free one.")
@click.option("--every", type=float, default=5.0, show_default=True, help="Seconds between two lines of figures.")
def policy_server(model: Path, host: str, port: int, every: float) -> None:
    """Serve MODEL.onnx: engines connect, send OBS lines and get ACT lines (docs/policy-server.md).

    All engines' observations that arrive together are answered by one call of the model. A newer file is picked up
    while it runs.
    """
    from ue_rl.inference.policy_server import PolicyServer
    from ue_rl.inference.reload import ReloadingInference

    logging.getLogger("ue_rl.inference.policy_server").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setLevel(min(handler.level, logging.INFO))

    def figures(server: PolicyServer) -> str:
        seen = server.percentiles()
        text = f"{len(server.engines)} engines, {server.requests:,} actions in {server.batches:,} batches"
        return text if seen is None else f"{text}, latency p50 {seen[0] * 1e6:,.0f} us, p99 {seen[1] * 1e6:,.0f} us"

    async def run() -> None:
        with ReloadingInference(model, interval=None, warm_up=(1, 16)) as policy:
            server = PolicyServer(policy, host, port)
            try:
                await server.start()
            except OSError as error:
                raise ConfigurationError(
                    f"cannot listen on {host}:{port}", fault="caller", field="port", got=str(error),
                    cure="choose another --port",
                ) from error  # fmt: skip
            click.echo(
                f"{model}: {policy.obs_size} -> {policy.act_size} numbers, on {host}:{server.port}  (Ctrl-C stops)"
            )
            last = -1
            try:
                while True:
                    await asyncio.sleep(every)
                    if server.requests != last:
                        last = server.requests
                        click.echo(figures(server))
            finally:
                click.echo(figures(server))
                await server.close()

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run())
    click.echo("stopped")
