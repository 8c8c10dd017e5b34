"""FEATURES=AUTORESET: a reset that was asked ahead follows the end of the episode, in the same answer."""

from __future__ import annotations

from ue_rl.compliance.bench import SHARED, Bench
from ue_rl.compliance.checks.resets import shown
from ue_rl.compliance.peer import Skip
from ue_rl.compliance.replay import takes_seeds

_MOST = 1500  # steps
_SEED = 5000


def asked_ahead(bench: Bench) -> str:
    """The first end of an episode brings the next one's first state, as its seed says."""
    peer = bench.text()
    spec = peer.spec
    if "AUTORESET" not in spec.features or spec.groups or peer.carrier != SHARED:
        raise Skip("no reset can be asked ahead here")
    bench.needs_right("never-done", "reset-ignored")
    bench.anew()
    seeds = [bench.options.seed + _SEED + env if takes_seeds(bench) else None for env in range(spec.num_envs)]
    with bench.provoking("autoreset-wrong", "resets were asked ahead"):
        peer.ask_ahead(seeds)
        steps, over = 0, bench.over()
        for _ in bench.while_there_is_time(bench.options.patience, _MOST):
            bench.step()
            steps, over = steps + 1, bench.over()
            if over:
                break
        if not over:
            bench.anew()  # which voids them
            raise Skip("no episode ended")
        first = peer.begun(over).obs[over]
    bench.forget()
    after = f"behind step {steps}, which ended an episode"
    if seeds[0] is not None and not bench.failed & {"not-repeatable", "seed-ignored", "seed-of-one-env-ignored"}:
        again = bench.begin(seeds=seeds).obs[over]
        if (first != again).any():
            text = f"{after}, env {over[0]} began elsewhere than after ACT=RESET with the same seed"
            return bench.fail("autoreset-wrong", text, f"{shown(first[:1])}; {shown(again[:1])}", over[0])
    bench.anew()
    return f"{after}, came the first state of the next one"
