"""`ue-rl train`: flags, progress, the summary at the end. The run itself is ue_rl.training."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ue_rl.cli.common import console, json_object, two_columns
from ue_rl.errors import ConfigurationError
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import parse_param, parse_setting, resolve
from ue_rl.training.report import Outcome, Report
from ue_rl.training.run import train as run_training


@click.command(short_help="Train a policy.")
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file: ours, or the Unreal plugin's own.")
@click.option(
    "--algo", help="ppo (default), a2c, sac, td3, ddpg, dqn; sb3-contrib: trpo, tqc, qrdqn, recurrentppo, maskable_ppo."
)
@click.option("--env", help="Gymnasium id for the embedded engine.  [default: CartPole-v1]")
@click.option("--env-kwargs", help="JSON object for gymnasium.make.")
@click.option("--num-envs", type=int, help="Envs of the embedded engine.  [default: 8]")
@click.option("--host", help="Connect to a running engine instead: a name, an address, or shm://NAME.")
@click.option("--port", type=int, help="Its port.  [default: 7777]")
@click.option("--wait", type=float, help="Keep trying to connect this many seconds.")
@click.option(
    "--transport", type=click.Choice(["auto", "tcp", "shm"]),
    help="auto: shared memory where the engine offers it and both can.  [default: auto]",
)  # fmt: skip
@click.option("--channel", type=click.Choice(["auto", "shared", "per_env"]), help="The wiring.  [default: auto]")
@click.option("--timeout", type=float, help="Seconds a step may take.  [default: 30]")
@click.option("--timesteps", type=int, help="env-steps in all.  [default: 100000]")
@click.option("--seed", type=int, help="Same seed, same run (where the engine takes seeds).")
@click.option("--policy", help="SB3's policy class.  [default: by the observation space]")
@click.option("--net-arch", help="Hidden layers, such as 64,64.")
@click.option("--learning-rate", help="A number, or lin_0.001 for one that falls to 0.")
@click.option("--n-steps", type=int, help="Steps per env and rollout (on-policy).")
@click.option("--batch-size", type=int)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any further argument of the algorithm.")
@click.option("--normalize/--no-normalize", default=None, help="VecNormalize, saved with the model.")
@click.option("--max-episode-steps", type=int, help="Cut episodes after this many steps.")
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE",
    help="A parameter of the game, or NAME=LOW..HIGH: drawn anew for each episode.",
)  # fmt: skip
@click.option("--time-scale", type=float, help="How fast the game runs, 1 is real time.")
@click.option("--group", help="Of an engine with several groups of agents, the one that learns.")
@click.option("--device", help="cpu, cuda or auto.")
@click.option("--threads", type=int, help="torch's threads.  [default: half the cores]")
@click.option("--log-dir", help="Where runs are kept.  [default: runs]")
@click.option("--run-id", help="The run's folder.  [default: ALGO-ENV-N]")
@click.option("--resume", is_flag=True, help="Continue a run: --run-id, or the newest of the task.")
@click.option("--force", is_flag=True, help="Overwrite a run.")
@click.option("--init-from", help="Start with the weights of this model.zip.")
@click.option("--save-freq", type=int, help="env-steps between checkpoints.  [default: 50000]")
@click.option(
    "--eval-episodes", type=int, help="Evaluate on this many episodes at the end.  [default: 20 embedded, else 0]"
)
@click.option("--export/--no-export", default=None, help="Write model.onnx, at the end and with each checkpoint.")
@click.option("--verbose", type=int, help="SB3's verbosity.")
def train(
    config: Path | None, resume: bool, force: bool, settings: tuple[str, ...], params: tuple[str, ...], **flags: Any
) -> None:  # fmt: skip
    """Train a policy, in a running engine or in an embedded one.

    Without arguments: PPO on CartPole-v1, hosted by an embedded engine and reached over shared memory.
    """
    if resume and force:
        raise ConfigurationError("--resume and --force exclude each other", cure="continue the run, or overwrite it")
    flags["hyperparameters"] = _hyperparameters(flags, settings)
    flags["params"] = dict(parse_param(text) for text in params)
    if flags["env_kwargs"] is not None:
        flags["env_kwargs"] = json_object(flags["env_kwargs"], "env_kwargs")
    options, run = resolve(flags, config), None
    if resume:
        run = RunDirectory.existing(Path(options.log_dir), options.run_id, options.run_name)
        options = resolve(flags, config, base=run.read_config())
    outcome = run_training(options, resume=run, force=force, report=_Shown())
    _summary(outcome)
    if outcome.stopped_by is not None:
        click.get_current_context().exit(130 if isinstance(outcome.stopped_by, KeyboardInterrupt) else 1)


def _hyperparameters(flags: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    hyper = dict(parse_setting(text) for text in settings)
    arch = flags.pop("net_arch")
    if arch is not None:
        try:
            hyper["policy_kwargs"] = {**hyper.get("policy_kwargs", {}), "net_arch": [int(n) for n in arch.split(",")]}
        except ValueError:
            raise ConfigurationError("not a list of layers", field="net_arch", expected="64,64", got=arch) from None
    rate = flags.pop("learning_rate")
    if rate is not None:
        hyper["learning_rate"] = parse_setting(f"x={rate}")[1]
    for name in ("n_steps", "batch_size"):
        value = flags.pop(name)
        if value is not None:
            hyper[name] = value
    return hyper


class _Shown(Report):
    """On a terminal progress is a bar, otherwise a line every ten seconds and one at the end."""

    def __init__(self) -> None:
        self.screen = console()
        self.bar: Progress | None = None
        self.begun = self.shown = 0.0
        self.last = ""

    def started(self, run: RunDirectory) -> None:
        self.screen.print(f"run: {run.path}", soft_wrap=True)
        self.screen.print(f"watch: tensorboard --logdir {run.path.parent}", soft_wrap=True)

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        self.screen.print(f"{num_envs} envs: {', '.join(f'{key} {value}' for key, value in facts.items())}")

    def said(self, text: str) -> None:
        self.screen.print(text, soft_wrap=True)

    def warned(self, text: str) -> None:
        self.screen.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        now = time.monotonic()
        if not self.begun:
            self.begun, self.first, self.shown = now, env_steps, now
            if self.screen.is_terminal:
                self.bar = Progress(
                    TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("env-steps"),
                    TextColumn("{task.fields[fps]:>7} fps"), TextColumn("return {task.fields[mean]:>8}"),
                    TimeElapsedColumn(), TimeRemainingColumn(), console=self.screen,
                )  # fmt: skip
                self.task = self.bar.add_task("", total=total, completed=env_steps, fps="", mean="-")
                self.bar.start()
            return
        fps = f"{(env_steps - self.first) / max(now - self.begun, 1e-9):,.0f}"
        mean = "-" if mean_return is None else f"{mean_return:.1f}"
        self.last = f"{env_steps:,} of {total:,} env-steps, {fps} fps, return {mean}"
        if self.bar:
            self.bar.update(self.task, completed=min(env_steps, total), fps=fps, mean=mean)
        elif now - self.shown >= 10:
            self.shown = now
            self.screen.print(self.last)

    def ended(self) -> None:
        if self.bar:
            self.bar.stop()
        elif self.last:
            self.screen.print(self.last)


def _summary(outcome: Outcome) -> None:
    run, reason = outcome.run, outcome.stopped_by
    table = two_columns("done" if reason is None else "stopped early")
    learnt = outcome.env_steps - outcome.before
    speed = learnt / max(outcome.seconds, 1e-9)
    steps = f"{learnt:,} in {outcome.seconds:.0f} s ({speed:,.0f} per second)"
    table.add_row("env-steps", f"{outcome.env_steps:,}, of them {steps} now" if outcome.before else steps)
    if outcome.mean_return is not None:
        table.add_row("last 100 episodes", f"mean return {outcome.mean_return:.1f} ({outcome.episodes:,} in all)")
    if outcome.evaluation is not None:
        table.add_row("evaluation", "mean return {:.1f} +/- {:.1f}, without exploration".format(*outcome.evaluation))
    table.add_row("model", str(run.model))
    if outcome.exported is not None:
        table.add_row("ONNX", outcome.exported)
    if run.curves.exists():
        table.add_row("curves", str(run.curves))
    table.add_row("logs", f"{run.log}, {run.episodes}, tensorboard --logdir {run.path}")
    screen = console()
    screen.print(table)
    if reason is not None:
        text = "stopped by Ctrl-C" if isinstance(reason, KeyboardInterrupt) else f"{type(reason).__name__}: {reason}"
        again = ["ue-rl", "train", "--resume", "--log-dir", str(run.path.parent), "--run-id", run.path.name]
        screen.print(text, style="bold red", soft_wrap=True)
        screen.print(f"The model is saved; continue with: {shlex.join(again)}", soft_wrap=True)
