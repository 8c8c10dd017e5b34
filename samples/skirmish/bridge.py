"""Skirmish: a real-time strategy game for one player, vectorised over sessions.

ue-rl serve --bridge samples.skirmish.bridge:Skirmish --num-envs 16 --kwargs '{"ticks": 10}'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.begin import begin
from samples.skirmish.orders import legal, obey
from samples.skirmish.picture import picture
from samples.skirmish.rules import COST, LEVELS, MAX_TICKS, RESULTS, THINK, TICK_RATE, TILES, VERBS, WHO, ZONES, Result
from samples.skirmish.sight import EVENTS, LAYERS, MAP_SIZE, NUMBERS, OBS_NAMES, OBS_SIZE, events, observe
from samples.skirmish.state import Rows, World
from samples.skirmish.think import advance
from samples.skirmish.tools import Tools
from ue_rl.bridges import VectorBridge
from ue_rl.plugins.sessions.realtime import Interrupts
from ue_rl.protocol.spec import ActionKind, ActionSpec, EnvSpec
from ue_rl.protocol.text import read_space

_SPACE = read_space(f"DICT(map:BOX(-inf:inf)[{len(LAYERS)},{ZONES},{ZONES}],numbers:BOX(-inf:inf)[{len(NUMBERS)}])")
_ACTION = ActionSpec(ActionKind.MULTI_DISCRETE, counts=(len(VERBS), len(WHO), TILES, TILES))


class Skirmish(Tools, VectorBridge):
    """Destroy the opponent's base before yours is destroyed.

    Observation: `map`, 8 layers of 8 x 8 zones (LAYERS of sight.py), and `numbers` (NUMBERS there), as they were in the
    last fifth tick, when units looked around, or after a command. Action: a command as four choices: verb (VERBS of
    rules.py), who (WHO), and the tile x, y. The mask says which verbs and groups are legal. Reward: 1 for a win and -1
    for a defeat; and the change of: what the player has and what the opponent has lost, in credits / 5000, and the
    health of the player's base less that of the opponent's / 2000.

    Args:
        num_envs: sessions. ticks: of a step. opponent: one of LEVELS, where the option {"opponent": "weak"} of a reset
            does not say otherwise.
    """

    observation_names, action_names, no_op = OBS_NAMES, ("verb", "who", "x", "y"), (0, 0, 0, 0)

    def __init__(self, num_envs: int = 8, ticks: int = 1, opponent: str = "middle") -> None:
        features = frozenset({"INFO", "MASK", "OPTIONS", "SEED"})
        super().__init__(
            EnvSpec(
                OBS_SIZE, 4, num_envs=num_envs, action=_ACTION, obs_space=_SPACE, features=features,
                act_names=self.action_names, render_fps=max(1, TICK_RATE // ticks),
            )
        )  # fmt: skip
        self.world, self.ticks, self.opponent = World(num_envs), ticks, opponent
        self.balance, self.interrupts = np.zeros(num_envs), Interrupts(EVENTS, num_envs)

    def reset_envs(self, env_ids: Rows, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]) -> None:
        """Two bases in opposite corners, ore beside them and in the middle."""
        levels = [(told or {}).get("opponent", self.opponent) for told in options]
        unknown = set(levels) - set(LEVELS)
        if unknown:
            raise ValueError(f"opponent: expected one of {', '.join(LEVELS)}, got {unknown.pop()!r}")
        begin(self.world, env_ids, seeds, [LEVELS.index(level) for level in levels])
        self.balance[env_ids] = self._worth(env_ids)
        self._show(env_ids)

    def step_envs(self, actions: NDArray[np.float32], env_ids: Rows) -> None:
        """A command for each session, then ticks; a session that is over stays as it is."""
        world, out = self.world, self.outbox
        begun = playing = env_ids[world.result[env_ids] == Result.PLAYING]
        commands = actions[begun].astype(np.int64)
        obey(world, 0, begun, commands)
        for _ in range(self.ticks):
            playing = playing[world.result[playing] == Result.PLAYING]
            if len(playing):
                advance(world, playing)
        out.obs[begun, MAP_SIZE] = world.tick[begun] / MAX_TICKS
        out.rewards[env_ids] = 0
        out.dones[env_ids] = world.result[env_ids] != Result.PLAYING
        changed = (world.tick[begun] % THINK < self.ticks) | (commands[:, 0] != 0)
        if changed.any():
            self._account(begun[changed])

    def _account(self, env_ids: Rows) -> None:
        """What has changed since these sessions were looked at: observation, events, rewards, and who has won."""
        out, before = self.outbox, self.outbox.obs[env_ids]
        self._show(env_ids)
        for name, where in events(before, out.obs[env_ids]).items():
            if where.any():
                self.interrupts.raise_in(env_ids[where], name)
        result = self.world.result[env_ids]
        balance = self._worth(env_ids) + (result == Result.WIN) - (result == Result.LOSE)
        out.rewards[env_ids] = balance - self.balance[env_ids]
        self.balance[env_ids] = balance
        over = result != Result.PLAYING
        for env, code in zip(env_ids[over].tolist(), result[over].tolist(), strict=True):
            self.write_info(env, {"result": RESULTS[code], "is_success": code == Result.WIN})

    def _worth(self, env_ids: Rows) -> NDArray[np.float64]:
        world = self.world
        owned = (COST[world.kind[env_ids, 0]] + COST[world.making[env_ids, 0]]).sum(axis=1)
        base = world.hp[env_ids, :, 0]
        return (owned + world.lost[env_ids, 1]) / 5000 + (base[:, 0] - base[:, 1]) / 2000

    def _show(self, env_ids: Rows) -> None:
        part, masks = self.world.part(env_ids), self.outbox.masks
        self.outbox.obs[env_ids] = observe(part)
        masks[env_ids, : len(VERBS) + len(WHO)] = legal(part, 0)
        masks[env_ids, len(VERBS) + len(WHO) :] = 1  # every tile

    def render(self, env_id: int) -> NDArray[np.uint8]:
        """uint8 [320, 320, 3]."""
        return picture(self.world, env_id)

    # -- for what plays in real time, or by tools

    def apply_action(self, env_id: int, action: NDArray[np.float32]) -> None:
        """Carries out a command without a tick."""
        row = np.array([env_id])
        obey(self.world, 0, row, np.asarray(action)[None].astype(np.int64))
        self._show(row)

    def changed(self, env_id: int) -> None:
        """See Tools."""
        self._show(np.array([env_id]))

    def result(self, env_id: int) -> str:
        """ "win", "lose", "draw", or "" while the session goes on."""
        return RESULTS[self.world.result[env_id]]
