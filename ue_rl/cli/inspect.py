"""`ue-rl inspect`: connects to an engine and shows its handshake, spaces and speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ue_rl.cli.common import connection_flags, console, engine_url, two_columns
from ue_rl.cli.inspect_notes import Seen, notes
from ue_rl.errors import printable

if TYPE_CHECKING:
    from rich.table import Table


@click.command(short_help="Show an engine's handshake and speed.")
@connection_flags(10.0, "Seconds to wait for each answer.")
@click.option("--steps", type=click.IntRange(0), default=200, show_default=True, help="Steps with random actions.")
def inspect(host: str, port: int, steps: int, **options: Any) -> None:
    """Connect to an engine, show its handshake, spaces, wiring and latency, and what limits its speed.

    `ue-rl check` says whether the engine follows the protocol.
    """
    from rich.text import Text

    from ue_rl.cli.inspect_spaces import rows
    from ue_rl.connecting import open_transport
    from ue_rl.wire import encode_handshake

    url = engine_url(host, port)
    begun = time.perf_counter()
    opened: Any = open_transport(url, **options)
    with closing(opened) as carrier:
        spec = carrier.connect()
        connected = time.perf_counter() - begun
        table = two_columns()
        table.add_row("handshake", printable(carrier.handshake or spec.text or encode_handshake(spec).decode().strip()))
        table.add_row("envs", f"{spec.num_envs} ({spec.env_type.value})")
        for what, text in rows(spec):
            table.add_row(printable(what), printable(text))
        table.add_row("features", printable(", ".join(sorted(spec.features))) or "none beyond the base protocol")
        for key, value in carrier.describe().items():
            table.add_row(key, printable(value))
        if spec.groups:  # a step needs a policy for each group: see ue_rl.agents
            table.add_row("step latency", "not measured: each group needs a policy (docs/agents.md)")
            console().print(table)
            return
        advice: list[str] = []
        try:
            advice = _measure(carrier, steps, connected, table)
        finally:  # what is known by then helps where a step fails
            screen = console()
            screen.print(table)
        for note in advice:
            screen.print(Text.assemble(("note", "yellow"), f" {note}"))


def _measure(carrier: Any, steps: int, connected: float, table: Table) -> list[str]:
    """Takes random steps, adds what they show to the table, and returns advice. `connected`: seconds that it took."""
    from ue_rl.envs.vec_env import UnrealVecEnv

    spec = carrier.spec
    env = UnrealVecEnv(carrier)
    table.add_row("for Gymnasium and SB3", printable(f"{env.observation_space}\n{env.action_space}", lines=True))
    begun = time.perf_counter()
    obs = env.reset()
    table.add_row("connect / first reset", f"{connected * 1e3:.1f} ms / {(time.perf_counter() - begun) * 1e3:.1f} ms")
    for name, part in _parts(obs):
        first = np.ravel(part[0])
        table.add_row(
            f"first {printable(name)}", f"env 0: {', '.join(map(str, first[:8]))}{' ..' if len(first) > 8 else ''}"
        )
    taken, seen = [], Seen(spec, carrier.describe().get("transport", ""), steps)
    env.action_space.seed(0)
    for _ in range(steps):
        actions = np.stack([np.asarray(_sample(env, i)) for i in range(env.num_envs)])
        begun = time.perf_counter()
        _, rewards, dones, _ = env.step(actions)
        taken.append(time.perf_counter() - begun)
        seen.step(carrier.buffers, rewards, dones, taken[-1])
    if taken:
        p50, p99 = np.percentile(taken, [50, 99])
        table.add_row("step latency", f"p50 {p50 * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms ({steps} steps)")
        rate = 1 / float(np.mean(taken))
        table.add_row("speed", f"{rate:,.0f} steps/s of all envs, {rate * env.num_envs:,.0f} env-steps/s")
    return [*notes(spec, float(np.median(taken)) if taken else None), *seen.notes()]


def _sample(env: Any, env_id: int) -> Any:
    """A random action; a choice that is legal, where the engine sends masks."""
    from gymnasium import spaces

    space = env.action_space
    if env.engine_spec.mask_size and isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        mask = np.asarray(env.env_method("action_masks", indices=[env_id])[0], np.int8)
        if isinstance(space, spaces.Discrete):
            return space.sample(mask=mask)
        return space.sample(mask=tuple(np.split(mask, np.cumsum(space.nvec.reshape(-1))[:-1])))
    return space.sample()


def _parts(obs: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(name, array) of an observation, or of each part of a dict or tuple."""
    if not isinstance(obs, (dict, tuple)):
        yield path or "observation", obs
        return
    for name, part in obs.items() if isinstance(obs, dict) else enumerate(obs):
        yield from _parts(part, f"{path}.{name}" if path else str(name))
