"""`ue-rl train`: its flags. The run itself is ue_rl.training, what is shown of it train_report.py and train_live.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import command_line, engine_url, json_object, lasting_console, nul_terminated_option
from ue_rl.cli.logs import use_json, use_text
from ue_rl.cli.train_report import lines, summary
from ue_rl.errors import ConfigurationError
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import resolve
from ue_rl.training.report import Report
from ue_rl.training.run import train as run_training
from ue_rl.training.settings import parse_param, parse_setting


@click.command(short_help="Train a policy.")
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file: ours, or the Unreal plugin's own.")
@click.option("--backend", help="Who learns: sb3 (Stable-Baselines3, default), or rllib (Ray; see docs/rllib.md).")
@click.option(
    "--algo", help="ppo (default), a2c, sac, td3, ddpg, dqn; sb3-contrib: trpo, tqc, qrdqn, recurrentppo, "
    "maskable_ppo; rllib: ppo, appo, impala, sac, dqn.",
)  # fmt: skip
@click.option("--env", help="Gymnasium id for the embedded engine.  [default: CartPole-v1]")
@click.option("--env-kwargs", help="JSON object for gymnasium.make.")
@click.option(
    "--engine", metavar="COMMAND", help="Start engines by this: './Game.sh --port {port} --envs {num_envs}', or a "
    "preset such as godot:PATH, unity:PATH, unreal:PATH, unreal-editor:PATH.",
)  # fmt: skip
@click.option("--num-engines", type=int, help="How many are started, each a process of its own.  [default: 1]")
@click.option("--num-envs", type=int, help="Envs of each engine that is started.  [default: 8]")
@click.option("--num-env-runners", type=int, help="rllib: processes that play; --num-envs is of each.  [default: 2]")
@click.option(
    "--ray-address", help="rllib: a cluster that runs already: auto, or HOST:PORT.  [default: start one here]"
)
@click.option("--num-learners", type=int, help="rllib: processes that learn; 0: this one.  [default: 0]")
@click.option("--num-gpus-per-learner", type=float, help="rllib: GPUs of each of them.  [default: 0]")
@click.option("--start-timeout", type=float, help="Seconds that an engine may take to start.  [default: 120]")
@click.option("--max-restarts", type=int, help="A lost engine is started again, so often ..  [default: 10]")
@click.option("--restart-window", type=float, help=".. within this many seconds.  [default: 60]")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST",
    help="Connect to a running engine instead: a name, an address, NAME:PORT, or shm://NAME; once for each engine.",
)  # fmt: skip
@click.option("--port", type=int, help="Its port.  [default: 7777]")
@click.option("--reconnect", type=float, help="Dial a running engine again, for so many seconds.  [default: 0]")
@click.option("--wait", type=float, help="Keep trying to connect this many seconds.")
@click.option(
    "--transport", type=click.Choice(["auto", "tcp", "shm"]),
    help="auto: shared memory where the engine offers it and both can.  [default: auto]",
)  # fmt: skip
@click.option("--channel", type=click.Choice(["auto", "shared", "per_env"]), help="The wiring.  [default: auto]")
@nul_terminated_option
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
@click.option("--save-minutes", type=float, help="Minutes between checkpoints; 0: --save-freq alone.  [default: 5]")
@click.option("--keep", type=int, help="How many checkpoints are kept.  [default: 3]")
@click.option(
    "--save-replay-buffer/--no-save-replay-buffer", default=None,
    help="The newest checkpoint holds it, as far as it is filled.  [default: yes]",
)  # fmt: skip
@click.option(
    "--eval-episodes", type=int, help="Evaluate on this many episodes at the end.  [default: 20 embedded, else 0]"
)
@click.option("--export/--no-export", default=None, help="Write model.onnx, at the end and with each checkpoint.")
@click.option("--verbose", type=int, help="SB3's verbosity.")
@click.option("--ui", is_flag=True, help="A live view of engines, returns and log, on a terminal.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="json: one object a line on stderr, also for each change of an engine's life.",
)  # fmt: skip
def train(
    config: Path | None, resume: bool, force: bool, settings: tuple[str, ...], params: tuple[str, ...],
    hosts: tuple[str, ...], ui: bool, log_format: str, **flags: Any,
) -> None:  # fmt: skip
    """Train a policy, in running engines, in engines that are started by a command, or in embedded ones.

    Without arguments: PPO on CartPole-v1, hosted by an embedded engine and reached over shared memory.
    """
    with command_line():
        if resume and force:
            cure = "continue the run, or overwrite it"
            raise ConfigurationError("--resume and --force exclude each other", cure=cure)
        flags["host"] = (hosts[0] if len(hosts) == 1 else list(hosts)) if hosts else None
        flags["hyperparameters"] = _hyperparameters(flags, settings)
        flags["params"] = dict(parse_param(text) for text in params)
        if flags["env_kwargs"] is not None:
            flags["env_kwargs"] = json_object(flags["env_kwargs"], "env_kwargs")
        options, run = resolve(flags, config, resumed=resume), None
        for host in options.hosts:
            engine_url(host, options.port)
    if resume:
        run = RunDirectory.existing(Path(options.log_dir), options.run_id, options.run_name)
        options = resolve(flags, config, base=run.read_config())
    use_json() if log_format == "json" else use_text()
    outcome = run_training(options, resume=run, force=force, report=_report(ui))
    summary(outcome)
    reason = outcome.stopped_by
    if reason is not None:
        code = getattr(reason, "exit_code", 130 if isinstance(reason, KeyboardInterrupt) else 1)
        click.get_current_context().exit(code)


def _report(ui: bool) -> Report:
    """Shows a run on this terminal: with `ui` the live view, where stdout is a terminal."""
    if ui and lasting_console().is_terminal:
        from ue_rl.cli.train_live import live_view

        return live_view()
    return lines()


def _hyperparameters(flags: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    hyper = dict(parse_setting(text) for text in settings)
    arch = flags.pop("net_arch")
    if arch is not None:
        kwargs = hyper.get("policy_kwargs") or {}
        if not isinstance(kwargs, dict):
            raise ConfigurationError(
                "not arguments of a policy", field="set policy_kwargs", expected="{..}", got=kwargs
            )
        layers = arch.split(",")
        if not all(layer.strip().isdecimal() and int(layer) > 0 for layer in layers):
            raise ConfigurationError("not a list of layers", field="net_arch", expected="64,64", got=arch)
        hyper["policy_kwargs"] = {**kwargs, "net_arch": [int(layer) for layer in layers]}
    rate = flags.pop("learning_rate")
    if rate is not None:
        hyper["learning_rate"] = parse_setting(f"x={rate}")[1]
    for name in ("n_steps", "batch_size"):
        value = flags.pop(name)
        if value is not None:
            hyper[name] = value
    return hyper
