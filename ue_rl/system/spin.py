"""How long each wait spins (polls without giving up the core) before it blocks, and how it is cut into slices.

Waking a blocked process takes about 35 us on two cores, more than everything else in a small step: a step over the
shared channel takes 27 to 43 us when the client blocks at once and 16 when it spins first. So each wait spins for as
long as the other side usually takes, and not at all on a single core, where spinning keeps the other side from
answering. These are upper limits: where spinning fails again and again, or the cores are busy, the waits of
ue_rl/protocol/text/_sockets.h, ue_rl/protocol/memory/_sync.c and ue_rl/bridges/tcp/poller.py block at once
(benchmarks/README.md).
"""

from __future__ import annotations

import os

_MANY_CORES = (os.cpu_count() or 1) > 1

# The trainer waits for a step, over TCP and over shared memory. A step of 16 small envs takes 120 us. PPO over shared
# memory ran at 0.78 of DummyVecEnv's speed with 50 us on both sides, at 0.88 with 50 here and 300 on the engine's side,
# and at 0.95 with 300 here and 800 there.
if _MANY_CORES:
    TRAINER_SPIN_US = 300
else:
    TRAINER_SPIN_US = 0

# The engine waits for the next request: a policy's forward pass, about 400 us for PPO with 16 envs. Same measurement.
if _MANY_CORES:
    ENGINE_SPIN_US = 800
else:
    ENGINE_SPIN_US = 0

# The TCP server spins inside a callback of its event loop, because a turn of the loop costs more than a small step; the
# figure is ENGINE_SPIN_US in seconds. It then blocks for one slice before it goes back to the loop. Other connections
# and tasks get their turn after SERVER_TURN seconds. Against a loop that only polled: 718 instead of 820 us a step of
# 16 CartPoles with its resets, PPO at 0.86 instead of 0.85 of DummyVecEnv's speed (two loaded cores).
LONGEST_SPIN = ENGINE_SPIN_US / 1e6
SERVER_TURN = 5e-3
SERVER_SLICE_MS = 2
# sched_yield() normally returns within a microsecond. If it took this long, another process was given the core: leave
# the core to it for a while. With one of two cores hogged, a step takes 226 us when
# the client keeps spinning and 43 us when it blocks at once.
DESCHEDULED = 100e-6

# Every wait ends after one slice, so that Ctrl-C and deadlines are seen on every platform. Each slice costs a few
# microseconds: a trainer that waits for a 50 ms step uses 0.5 % of a core.
TCP_SLICE_MS = 250  # the trainer, on sockets
TRAINER_SLICE_MS = 100  # the trainer, on shared memory: also how soon the engine's death is noticed without a socket
ENGINE_SLICE_MS = 20  # the engine, on shared memory: how soon it sees events, commands and a trainer that has gone
