"""`ue-rl inspect`: connects to an engine and shows its handshake, spaces and speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from ue_rl.cli.common import console, engine_argument, engine_url, timeout_option, two_columns
from ue_rl.devtools.check.sampling import Sampler
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spaces.tree import Branch, leaves
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system.compiled import what_is_lacking
from ue_rl.system.errors import printable
from ue_rl.training.symptoms import Symptoms, delayed

if TYPE_CHECKING:
    from rich.table import Table

_FEW = 50  # steps; less say nothing about what never happens


@click.command(short_help="Show an engine's handshake and speed.")
@engine_argument
@timeout_option(10.0, "How long to wait for each answer.")
@click.option("--steps", type=click.IntRange(0), default=200, show_default=True, help="How many random steps to take.")
def inspect(url: str | None, port: int | None, steps: int, timeout: float) -> None:
    """Show an engine's handshake, spaces, parameters, wiring and latency, and what limits its speed.

    It takes steps with random actions. An engine with agents is not stepped.
    """
    from rich.text import Text

    from ue_rl.cli.inspect_spaces import rows
    from ue_rl.connections.dialling import open_transport
    from ue_rl.protocol.text import encode_handshake

    address = engine_url(url, port)
    begun = time.perf_counter()
    opened: Any = open_transport(address, timeout=timeout)
    with closing(opened) as transport:
        spec = transport.connect()
        connected = time.perf_counter() - begun
        table = two_columns()
        table.add_row(
            "handshake", printable(transport.handshake or spec.text or encode_handshake(spec).decode().strip())
        )
        table.add_row("envs", f"{spec.num_envs} ({spec.env_type.value})")
        for what, text in rows(spec):
            table.add_row(printable(what), printable(text))
        features = printable(", ".join(sorted(spec.features)))
        if not features:
            features = "none beyond the base protocol"
        table.add_row("features", features)
        for key, value in transport.describe().items():
            table.add_row(key, printable(value))
        if spec.groups:  # a step needs a policy for each group: see ue_rl.envs.agents
            table.add_row("step latency", "not measured: each group needs a policy (docs/agents.md)")
            console().print(table)
            return
        advice: list[str] = []
        try:
            advice = _measure(transport, steps, connected, table)
        finally:  # what is known by then helps where a step fails
            screen = console()
            screen.print(table)
        for note in advice:
            screen.print(Text.assemble(("note", "yellow"), f" {note}"))


def _measure(transport: Any, steps: int, connected: float, table: Table) -> list[str]:
    """Takes random steps, adds what they show to the table, and returns advice. `connected`: seconds that it took."""
    spec = transport.spec
    buffers = transport.buffers
    if find_spec("stable_baselines3") is not None:
        from ue_rl.envs.spaces import action_space, observation_space

        spaces = f"{observation_space(spec, zero_based=True)}\n{action_space(spec, zero_based=True)}"
        table.add_row("for Gymnasium and SB3", printable(spaces, lines=True))
    begun = time.perf_counter()
    transport.reset()
    transport.receive()
    table.add_row("connect / first reset", f"{connected * 1e3:.1f} ms / {(time.perf_counter() - begun) * 1e3:.1f} ms")
    for name, first in _parts(spec, buffers):
        shown = f"env 0: {', '.join(map(str, first[:8]))}{' ..' if len(first) > 8 else ''}"
        table.add_row(f"first {printable(name)}", shown)
    taken = []
    seen = StepStatistics(spec, transport.describe().get("transport", ""), steps)
    sampler = Sampler(spec, seed=0)
    for _ in range(steps):
        actions = sampler.random(buffers)
        begun = time.perf_counter()
        transport.send_actions(actions)
        transport.receive()
        rewards = buffers.rewards.copy()
        dones = buffers.dones.astype(np.bool_)
        if dones.any():
            transport.reset(np.flatnonzero(dones).tolist())
            transport.receive()
        taken.append(time.perf_counter() - begun)
        seen.step(buffers, rewards, dones, taken[-1])
    if taken:
        p50, p99 = np.percentile(taken, [50, 99])
        table.add_row("step latency", f"p50 {p50 * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms ({steps} steps)")
        rate = 1 / float(np.mean(taken))
        table.add_row("speed", f"{rate:,.0f} steps/s of all envs, {rate * spec.num_envs:,.0f} env-steps/s")
    if not taken:
        taken_for = None
    else:
        taken_for = float(np.median(taken))
    return [*filter(None, [what_is_lacking()]), *notes(spec, taken_for), *seen.notes()]


def _parts(spec: EnvSpec, buffers: StepBuffers) -> Iterator[tuple[str, NDArray[Any]]]:
    """(name, its numbers) of each part of the first env's observation."""
    if buffers.image is not None:
        yield "image", np.ravel(buffers.image[0])
    for path, leaf, start in leaves(spec.obs_space) if spec.obs_space is not None else ():
        if path and leaf.size:
            yield ".".join(path), buffers.obs[0, start : start + leaf.size].astype(leaf.dtype)
    if spec.obs_size and not isinstance(spec.obs_space, Branch):
        yield "observation", buffers.obs[0]


class StepStatistics:
    """What random steps show.

    Args:
        spec: of the engine. carrier: what the steps travel over. steps: how many there will be.
    """

    def __init__(self, spec: EnvSpec, carrier: str, steps: int) -> None:
        if not (steps >= _FEW):
            self._symptoms = None
        else:
            self._symptoms = Symptoms(spec, "", long=steps, enough=steps)
        self._said: list[str] = []
        self._steps = steps
        self._carrier = carrier
        self._seconds: list[float] = []
        self._same = spec.num_envs > 1 and spec.obs_size > 0
        self._first: Any = None
        self._moved = False

    def step(self, buffers: Any, rewards: Any, dones: Any, seconds: float) -> None:
        """After each step; `buffers`: of the transport."""
        if self._symptoms is not None:
            self._said += self._symptoms.step(buffers.obs, buffers.image, rewards, dones, seconds)
        self._seconds.append(seconds)
        if self._same:
            if self._first is None:
                self._first = buffers.obs[0].copy()
            self._same = bool(np.array_equal(buffers.obs, np.broadcast_to(buffers.obs[0], buffers.obs.shape)))
            self._moved = self._moved or not np.array_equal(buffers.obs[0], self._first)

    def notes(self) -> list[str]:
        """Sentences."""
        said = list(dict.fromkeys(self._said))
        if self._same and self._moved:
            said.append(
                f"all envs had the same observations in {self._steps} random steps: does each env have a state and a "
                "seed of its own, and does its action reach it?"
            )
        median = 0.0
        if self._seconds:
            median = float(np.median(self._seconds))
        if "tcp" in self._carrier and (text := delayed(median)):
            said.append(text)
        return said


def notes(spec: EnvSpec, median: float | None) -> list[str]:
    """What a user of such an engine should know; `median` seconds a step."""
    said = []
    if spec.version == 0:
        said.append(
            "this is the deployed plugin's dialect: rewards have two decimals, there are no seeds, and truncation "
            "cannot be told from termination (max_episode_steps= on the client can)"
        )
        longest = 4 + 16 * spec.act_size
        if longest > 1024:
            said.append(
                f"an action may take {longest} bytes; the plugin reads 1024 per tick, so it takes several ticks"
            )
    if median is not None and spec.env_type is EnvType.RLBASE and spec.version == 0 and 3 / 200 < median < 3 / 20:
        said.append(
            f"a step takes three of the game's ticks with RLBASE ({median * 1e3 / 3:.0f} ms each): MULTI with "
            "ENV_COUNT=1 takes one and reads actions rightly; shorter ticks help (-UseFixedTimeStep -FPS=..)"
        )
    elif median is not None and 1 / 200 < median < 1 / 20:
        more = "MULTI with several envs"
        if spec.env_type is EnvType.MULTI:
            more = "more envs"
        said.append(
            f"{1 / median:.0f} answers per second is the game's tick, not the bridge (or all cores are busy): "
            f"use {more}, a fixed time step (-UseFixedTimeStep -FPS=..), and no frame cap (t.MaxFPS 0)"
        )
    if spec.version == 0 and spec.env_type is not EnvType.MULTI:
        said.append(
            f"{spec.env_type.value} of the deployed plugin reads doubled or wrong actions, mostly without an error, "
            "unless a NUL byte is sent behind each line (not with --no-nul-terminated): use MULTI with ENV_COUNT=1 "
            "(docs/unreal.md)"
        )
    return said
