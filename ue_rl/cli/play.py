"""`ue-rl play`: a trained policy acts in an engine; its returns as a table, JSON, CSV and, if it draws, a GIF."""

from __future__ import annotations

import csv
import functools
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import WrongCommandLine, console, engine_argument, engine_url, timeout_option
from ue_rl.cli.export import model_in
from ue_rl.errors import nearest
from ue_rl.training.found import config_near, is_of_rllib, statistics_of


@click.command(short_help="Let a policy act.")
@click.argument("model", metavar="MODEL|RUN", type=click.Path(path_type=Path), shell_complete=completion.run_or_file)
@click.option("--vecnormalize", type=click.Path(path_type=Path), help="VecNormalize's statistics for a model.zip.")
@engine_argument
@timeout_option(30.0, "How long a step may take.")
@click.option("--env", metavar="ID", help="Play in this Gymnasium env instead of an engine.")
@click.option("--num-envs", type=click.IntRange(1), default=1, show_default=True, help="How many envs --env has.")
@click.option("--episodes", type=click.IntRange(1), default=10, show_default=True, help="How many episodes to play.")
@click.option("--max-episode-steps", type=click.IntRange(1), help="Cut episodes after this many steps.")
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of the episodes (if the engine takes seeds) and of the noise."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the episodes into this JSON file.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the episodes into this CSV file.")
@click.option(
    "--record-demos",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the episodes into FOLDER, a Minari dataset.",
)
@click.option(
    "--gif",
    type=click.Path(path_type=Path),
    help="Film env 0 of --env: 500 steps, or 128 MiB of pixels, at most. Needs Pillow.",
)
def play(
    model: Path, vecnormalize: Path | None, env: str | None, episodes: int, seed: int | None, json_file: Path | None,
    csv_file: Path | None, record_demos: Path | None, gif: Path | None, **connection: Any,
) -> None:  # fmt: skip
    """Let MODEL (.onnx or .zip) or the model of a RUN play in an engine, and report returns and lengths.

    Without URL and --env a RUN plays where it was trained: at its first URL, in an engine that its command starts, or
    in its Gymnasium env. Actions are deterministic, except those of a file that was exported with --stochastic. It
    sets no parameters, and takes no engine with agents.
    """
    given = connection["url"], connection["port"]
    if env is not None and given != (None, None):
        raise click.UsageError("--env is played here, URL is an engine that runs already: give one of them")
    command: dict[str, Any] | None = None
    kwargs: dict[str, Any] = {}
    trained = config_near(model / "model.zip") if model.is_dir() and env is None and given == (None, None) else {}
    if trained:
        from ue_rl.launching.template import used
        from ue_rl.training.engine import command_of
        from ue_rl.training.options import DEFAULT_ENV, TrainOptions

        options = TrainOptions(**trained)
        if options.urls:
            connection["url"] = options.urls[0]
        elif options.embedded and gif is not None:
            env, kwargs = options.env or DEFAULT_ENV, options.env_kwargs
        else:
            words = command_of(options)
            command = {"command": words, "start_timeout": options.start_timeout}
            command |= used(words, num_envs=options.num_envs, seed=seed or 0)
    from stable_baselines3.common.evaluation import evaluate_policy

    from ue_rl.cli.gif import GifFile

    if gif is not None and env is None:
        raise WrongCommandLine("only a hosted env can be filmed", field="gif", cure="add --env ID")
    if gif is not None:  # drawn into an array: SDL would look for a screen and a sound card, and complain without
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    policy = load_policy(model, vecnormalize, seed)
    film_file: Any = nullcontext() if gif is None else GifFile(gif)
    with film_file:
        with _engine(env, kwargs, command, gif is not None, connection) as (vec_env, bridge):
            spec = vec_env.engine_spec
            policy.require_spaces(spec, as_trainer=True)
            player = Player(policy, vec_env)
            if seed is not None:
                vec_env.seed(seed)
            recording: Any = nullcontext(vec_env)
            if record_demos is not None:
                from ue_rl.demonstrations.recording import RecordingVecEnv

                recording = RecordingVecEnv(vec_env, record_demos, episodes, algorithm_name=str(model))

            def film(local: dict[str, Any], _: Any) -> None:
                if bridge is not None and local["i"] == 0 and not film_file.full:
                    picture = bridge.render(0)
                    if picture is not None:
                        film_file.add(picture)

            with recording as seen:
                played: Any = evaluate_policy(
                    player, seen, n_eval_episodes=episodes, deterministic=True, return_episode_rewards=True, warn=False,
                    callback=film if gif else None,
                )  # fmt: skip
        rows = [
            {"episode": number, "return": float(value), "length": int(length)}
            for number, (value, length) in enumerate(zip(*played, strict=True))
        ]
        _show(model, rows)
        if json_file is not None:
            json_file.write_text(json.dumps({"model": str(model), "seed": seed, "episodes": rows}, indent=2), "utf-8")
        if csv_file is not None:
            with csv_file.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["episode", "return", "length"])
                writer.writeheader()
                writer.writerows(rows)


def load_policy(model: Path, vecnormalize: Path | None = None, seed: int | None = None) -> Any:
    """An InferenceInterface for an .onnx file, an SB3 zip, or the run or checkpoint that one of these is in.

    Args:
        seed: of a stochastic file's noise.

    Raises:
        WrongCommandLine: neither. ModelLoadError: the file cannot be used.
    """
    from ue_rl.inference import OnnxInference, Sb3Inference

    if model.is_dir():
        model = _model_in(model)
    if model.suffix == ".onnx":
        if vecnormalize is not None:
            raise WrongCommandLine(
                "an ONNX file has its normalisation inside", field="vecnormalize", cure="leave it out"
            )
        return OnnxInference(model, seed=seed)
    if model.suffix == ".zip":
        return Sb3Inference(model, vecnormalize or statistics_of(model))
    runs = [path.parent.name for path in model.parent.glob("*/config.yaml")]
    raise WrongCommandLine(
        "not a policy" if model.exists() else "there is no such run or file",
        field="model",
        expected="a RUN's folder, MODEL.onnx or MODEL.zip",
        got=str(model),
        cure=nearest(model.name, runs),
    )


def _model_in(folder: Path) -> Path:
    """The policy in a run's folder, or a checkpoint's: its model.onnx, else its model.zip."""
    if (folder / "model.onnx").exists():
        return folder / "model.onnx"
    if is_of_rllib(folder):
        what = "nothing of this run is exported"
        cure = f"write one: ue-rl export {folder}"
        raise WrongCommandLine(what, field="model", got=str(folder), expected="a model.onnx in it", cure=cure)
    return model_in(folder).path


class Player:
    """An InferenceInterface with SB3's predict(); the engine's action masks are given to a policy that heeds them."""

    def __init__(self, policy: Any, vec_env: Any) -> None:
        from ue_rl.inference import OnnxInference

        self._policy = policy
        self._space = vec_env.action_space
        masked = vec_env.engine_spec.mask_size > 0 and policy.takes_masks
        self._vec_env = vec_env if masked else None
        self._seen = vec_env.observation_space
        self._sent = isinstance(policy, OnnxInference)  # a file takes what the engine sends

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """The policy's actions in the env's dtype and shape; the policy keeps its own recurrent state."""
        import numpy as np

        from ue_rl.envs.actions import as_trained

        if episode_start is not None and np.any(episode_start):
            self._policy.reset(np.flatnonzero(episode_start).tolist() if state is not None else None)
        if self._sent:
            observation = as_sent(observation, self._seen)
        masks = {} if self._vec_env is None else {"action_masks": np.stack(self._vec_env.env_method("action_masks"))}
        return as_trained(self._policy.run_inference(observation, **masks), self._space), True


def as_sent(observation: Any, space: Any) -> Any:
    """An observation that UnrealVecEnv gave, [n, ...] or a dict of such, as the engine named and numbered it."""
    if isinstance(observation, dict):
        names = getattr(space, "engine_names", {})
        return {names.get(key, key): as_sent(part, space.spaces[key]) for key, part in observation.items()}
    starts = getattr(space, "engine_starts", None)
    if starts is not None:
        observation = observation + starts.reshape(space.shape)
    return observation if space.shape else observation.reshape(-1, 1)


@contextmanager
def _engine(
    env: str | None,
    kwargs: dict[str, Any],
    command: dict[str, Any] | None,
    filmed: bool,
    connection: dict[str, Any],
) -> Iterator[tuple[Any, Any]]:
    """(vec_env, the bridge where it runs in this process for filming); `command`: what ue_rl.launch takes."""
    import ue_rl
    from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_process, run_in_thread

    num_envs, url, port = (connection.pop(name) for name in ("num_envs", "url", "port"))
    bridge = None
    with ExitStack() as stack:
        if command is not None:
            vec_env = ue_rl.launch(**command, **connection)
            stack.callback(vec_env.close)
            yield vec_env, None
            return
        if env is None:
            url = engine_url(url, port)
        elif filmed:
            bridge = GymnasiumBridge(env, num_envs, render_mode="rgb_array", **kwargs)
            url = stack.enter_context(run_in_thread(bridge)).url
            connection = {"max_episode_steps": connection["max_episode_steps"]}
        else:
            factory = functools.partial(GymnasiumBridge, env, num_envs)
            url = stack.enter_context(run_in_process(factory, upgrader=ShmUpgrader())).url
        vec_env = ue_rl.connect(url, **connection)
        stack.callback(vec_env.close)
        yield vec_env, bridge


def _show(model: Path, rows: list[dict[str, Any]]) -> None:
    import numpy as np
    from rich.table import Table

    table = Table(title=str(model), title_justify="left")
    for column in ("episode", "return", "length"):
        table.add_column(column, justify="right")
    for row in rows[:20]:
        table.add_row(str(row["episode"] + 1), f"{row['return']:.2f}", str(row["length"]))
    if len(rows) > 20:
        table.add_row("..", "..", "..")
    console().print(table)
    returns = np.array([row["return"] for row in rows])
    lengths = np.array([row["length"] for row in rows])
    console().print(
        f"{len(rows)} episodes: return {returns.mean():.2f} +/- {returns.std():.2f} "
        f"({returns.min():.2f} to {returns.max():.2f}), length {lengths.mean():.1f} +/- {lengths.std():.1f} "
        f"({lengths.min()} to {lengths.max()})",
        soft_wrap=True,
    )
