"""SampleCollector: steps of all envs of an engine under a policy, as the chunks of episodes that a message holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ue_rl.plugins.rllib.rllink.episodes import EpisodeCutter
from ue_rl.plugins.rllib.rllink.messages import Chunk
from ue_rl.plugins.rllib.rllink.policy import RLlinkPolicy
from ue_rl.protocol.transport import Transport
from ue_rl.system.seeds import own_stream


@dataclass
class CollectedSample:
    """What one message holds, for people and tests.

    Args:
        steps: env-steps in it. seq: of the weights that it was played with.
        returns, lengths: of the episodes that ended in it, wherever they began.
    """

    steps: int
    seq: int
    chunks: list[Chunk] = field(repr=False)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


class SampleCollector:
    """Plays on where it stopped.

    Args:
        transport: connected, nobody else uses it. seed: of the draws of actions and, where the engine takes seeds, of
            each env's first episode; None: any.
    """

    def __init__(self, transport: Transport, seed: int | None = None) -> None:
        self._transport = transport
        self._seed = seed
        self._rng = np.random.default_rng(own_stream(seed, "actions"))
        count = transport.spec.num_envs
        self._cutter = EpisodeCutter(count)
        self._over = np.zeros(count, np.bool_)
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._obs = np.zeros((0, 0), np.float32)

    def play(self, policy: RLlinkPolicy, at_least: int) -> CollectedSample:
        """Takes steps until there are as many; envs whose episode is over are reset in the same request.

        Raises:
            What Transport.send_actions and receive raise.
        """
        cutter = self._cutter
        sample = CollectedSample(0, policy.seq, [])
        if not self._obs.size:
            self._begin()
        while cutter.steps < at_least:
            self._step(policy, sample)
        sample.steps = cutter.steps
        sample.chunks = cutter.take()
        return sample

    def begin_anew(self) -> None:
        """Every env is reset with the next step: the episodes that were open are nobody's."""
        self._over[:] = True

    def _begin(self) -> None:
        spec = self._transport.spec
        seeds = None
        if self._seed is not None and "SEED" in spec.features:
            seeds = [self._seed + env for env in range(spec.num_envs)]
        self._transport.reset(seeds=seeds)
        self._obs = self._transport.receive().obs.copy()
        self._cutter.begin(self._obs)

    def _step(self, policy: RLlinkPolicy, sample: CollectedSample) -> None:
        over = self._over
        transport = self._transport
        actions, logits, logp = policy.act(self._obs, self._rng)
        resets = over.nonzero()[0].tolist()
        begun = None
        if resets:
            begun = resets
        transport.send_actions(policy.how.to_engine(actions), begun)
        buffers = transport.receive()
        self._obs = obs = buffers.obs.copy()
        acted = None
        if resets:
            self._cutter.begin(obs, over)
            self._returns[over] = self._lengths[over] = 0
            acted = ~over
        lost = None
        if buffers.lost:  # nothing came of what these were asked: their episodes end with the step before
            lost = np.zeros(len(over), np.bool_)
            lost[list(buffers.lost)] = True
            if acted is None:
                acted = ~lost
            else:
                acted = acted & ~lost
            for env in buffers.lost:
                self._cutter.end(env)
        dones = buffers.dones != 0
        if acted is not None:
            dones &= acted
        truncated = dones & (buffers.truncated != 0)
        rewards = buffers.rewards
        self._cutter.add(actions, logits, logp, rewards, obs, dones & ~truncated, truncated, acted)
        if acted is None:
            self._returns += rewards
            self._lengths += 1
        else:
            self._returns[acted] += rewards[acted]
            self._lengths[acted] += 1
        for env in dones.nonzero()[0].tolist():
            sample.returns.append(float(self._returns[env]))
            sample.lengths.append(int(self._lengths[env]))
        over[:] = dones
        if lost is not None:
            over |= lost
