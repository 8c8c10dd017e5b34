"""`ue-rl train`: flags, the run's directory, the summary at the end. The run itself is ue_rl/training/run.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ue_rl.training.run import Outcome


@click.command(short_help="Train a policy.")
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file: ours, or the Unreal plugin's own.")
@click.option("--algo", help="ppo (default), a2c, sac, td3, ddpg, dqn; sb3-contrib: trpo, tqc, qrdqn, recurrentppo.")
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
def train(config: Path | None, resume: bool, force: bool, settings: tuple[str, ...], **flags: Any) -> None:
    """Train a policy, in a running engine or in an embedded one.

    Without arguments: PPO on CartPole-v1, hosted by an embedded engine and reached over shared memory.
    """
    from rich.console import Console

    from ue_rl.errors import ConfigurationError
    from ue_rl.training.directory import RunDirectory
    from ue_rl.training.options import resolve

    if resume and force:
        raise ConfigurationError(
            "--resume and --force exclude each other", fault="caller", cure="continue the run, or overwrite it"
        )
    flags["hyperparameters"] = _hyperparameters(flags, settings)
    if flags["env_kwargs"] is not None:
        flags["env_kwargs"] = _json_object(flags["env_kwargs"])
    options = resolve(flags, config)
    log_dir = Path(options.log_dir)
    task = f"{options.algo}-{options.task.replace('/', '-')}"
    if resume:
        run = RunDirectory.existing(log_dir, options.run_id, task)
        options = resolve(flags, config, base=run.read_config())
    else:
        run = RunDirectory.create(log_dir, options.run_id, task, force)
    console = Console()
    console.print(f"run: {run.path}")
    console.print(f"watch: tensorboard --logdir {log_dir}")
    from ue_rl.training.run import Training  # torch is loaded here, after everything cheap was checked

    try:
        outcome = Training(options, run, resume=resume, console=console)()
    except BaseException:
        _remove_if_empty(run)
        raise
    _summary(console, run, outcome)
    if outcome.stopped_by is not None:
        click.get_current_context().exit(130 if isinstance(outcome.stopped_by, KeyboardInterrupt) else 1)


def _hyperparameters(flags: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    from ue_rl.errors import ConfigurationError
    from ue_rl.training.options import parse_setting

    hyper = dict(parse_setting(text) for text in settings)
    arch = flags.pop("net_arch")
    if arch is not None:
        try:
            hyper["policy_kwargs"] = {**hyper.get("policy_kwargs", {}), "net_arch": [int(n) for n in arch.split(",")]}
        except ValueError:
            raise ConfigurationError(
                "not a list of layers", fault="caller", field="net_arch", expected="64,64", got=arch
            ) from None
    rate = flags.pop("learning_rate")
    if rate is not None:
        hyper["learning_rate"] = parse_setting(f"x={rate}")[1]
    for name in ("n_steps", "batch_size"):
        value = flags.pop(name)
        if value is not None:
            hyper[name] = value
    return hyper


def _json_object(text: str) -> dict[str, Any]:
    from ue_rl.errors import ConfigurationError

    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError("not a JSON object", fault="caller", field="env_kwargs", got=text)
    return value


def _remove_if_empty(run: Any) -> None:
    """A run that never began leaves no directory behind."""
    if not run.model.exists() and not run.episodes.exists():
        import shutil

        shutil.rmtree(run.path, ignore_errors=True)


def _summary(console: Any, run: Any, outcome: Outcome) -> None:
    from rich.table import Table

    table = Table(show_header=False, title="stopped early" if outcome.stopped_by else "done", title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    speed = outcome.env_steps / max(outcome.seconds, 1e-9)
    table.add_row("env-steps", f"{outcome.env_steps:,} in {outcome.seconds:.0f} s ({speed:,.0f} per second)")
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
    console.print(table)
    if outcome.stopped_by is not None:
        reason = outcome.stopped_by
        text = "stopped by Ctrl-C" if isinstance(reason, KeyboardInterrupt) else f"{type(reason).__name__}: {reason}"
        console.print(
            f"[bold red]{text}[/]\nThe model is saved; continue with: ue-rl train --resume --run-id {run.path.name}"
        )
