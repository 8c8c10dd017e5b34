"""`ue-rl play`: a trained policy acts in an engine; its returns as a table, JSON, CSV and, if it draws, a GIF."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from ue_rl.cli import completion
from ue_rl.cli.actors import actor_of
from ue_rl.cli.common import (
    WrongCommandLine,
    console,
    engine_argument,
    engine_url,
    table_of,
    timeout_option,
    trace_options,
    trust_option,
    vecnormalize_option,
)
from ue_rl.cli.export import model_in, require_statistics
from ue_rl.system.errors import nearest, printable
from ue_rl.system.seeds import own_seed
from ue_rl.training.found import config_near, is_of_rllib


@click.command(short_help="Let a policy act.")
@click.argument("model", metavar="MODEL|RUN", required=False, shell_complete=completion.run_or_file)
@vecnormalize_option()
@engine_argument
@timeout_option(30.0, "How long a step may take.")
@click.option(
    "--actor", metavar="random|MODULE:FUNCTION", help="Who acts instead of MODEL: chance, or observations -> actions."
)
@click.option("--engine", metavar="COMMAND", shell_complete=completion.engine, help="Start the engine, as train does.")
@click.option("--env", metavar="ID", help="Play in this Gymnasium env instead of an engine.")
@click.option(
    "--num-envs",
    type=click.IntRange(1),
    help="How many envs --env or --engine has.  [default: 1; those of RUN where it plays in its own engine]",
)
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
    help="Film one env, where the engine sends pictures: 500 steps, or 128 MiB of pixels, at most. Needs Pillow.",
)
@trust_option()
@trace_options
def play(
    model: str | None,
    vecnormalize: Path | Literal[False] | None,
    actor: str | None,
    engine: str | None,
    env: str | None,
    num_envs: int | None,
    episodes: int,
    seed: int | None,
    json_file: Path | None,
    csv_file: Path | None,
    record_demos: Path | None,
    gif: Path | None,
    **connection: Any,
) -> None:
    """Let MODEL (.onnx or .zip), the model of a RUN, or --actor play in an engine, and report returns and lengths.

    Without URL, --engine and --env a RUN, or a model in its folder, plays where it was trained: at its first URL, in an
    engine that its command starts, or in its Gymnasium env. Actions are deterministic, except those of a file that was
    exported with --stochastic. It sets no parameters, and takes no engine with agents.
    """
    if actor is not None and model is not None and connection["url"] is None:
        model, connection["url"] = None, model  # the first argument is the URL
    if (model is None) == (actor is None):
        raise click.UsageError("give MODEL or RUN, or --actor: one of them acts")
    if model is None and vecnormalize is not None:
        raise click.UsageError("--vecnormalize is for a model.zip: leave it out with --actor")
    given = connection["url"], connection["port"]
    if env is not None and given != (None, None):
        raise click.UsageError("--env is played here, URL is an engine that runs already: give one of them")
    if engine is not None and (env is not None or given != (None, None)):
        raise click.UsageError("--engine starts an engine: leave --env and URL out")
    path = None
    if model is not None:
        path = Path(model)
    if path is None:
        saved = None
    elif path.is_dir():
        saved = path / "model.zip"
    else:
        saved = path
    trained = {}
    if saved is not None:
        trained = config_near(saved)
    start: Callable[..., Any] | None = None
    from ue_rl.connections.engines.restarts import Restarts
    from ue_rl.training.config import require_origin
    from ue_rl.training.engine import command_of, engines_started
    from ue_rl.training.options import TrainOptions

    options = None
    if trained:
        options = TrainOptions(**trained)
    asked = None
    if engine or env:
        envs = num_envs
        if not envs:
            envs = 1
        asked = TrainOptions(engine=engine, env=env, num_envs=envs)
    if asked is not None and options is not None and asked.embedded:
        asked.env_wrapper = options.env_wrapper
    if options is not None and asked is None and given == (None, None):
        if options.urls:
            connection["url"] = options.urls[0]
        else:
            asked = options
        connection["token_file"] = options.token_file
    if path is not None and options is not None:
        # an engine that runs already starts nothing
        started = asked or TrainOptions()
        require_origin(
            path if path.is_dir() else path.parent,
            trained,
            replace(started, env_wrapper=options.env_wrapper, callback=None, trace=None),  # neither is used here
        )
    if num_envs is not None and asked is None:
        raise click.UsageError("--num-envs is for an engine that is started here: one that runs has its own number")
    if asked is not None:
        command = command_of(asked, filmed=gif is not None)
        restarts = Restarts.of("10/60s")
        first_seed = seed
        if not first_seed:
            first_seed = 0
        known: dict[str, Any] = {
            "num_envs": num_envs or asked.num_envs,
            "seed": first_seed,
            "start_timeout": asked.start_timeout,
        }
        start = partial(engines_started, command, restarts, **known)
    from stable_baselines3.common.evaluation import evaluate_policy

    from ue_rl.training.comparison import check_order
    from ue_rl.training.gif import GifFile
    from ue_rl.training.named import wrapped
    from ue_rl.training.videos import check_films

    if gif is not None:  # drawn into an array: SDL would look for a screen and a sound card, and complain without
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    policy = None
    if path is not None:
        policy = load_policy(path, vecnormalize, seed)
    film_file: Any
    if gif is None:
        film_file = nullcontext()
    else:
        film_file = GifFile(gif)
    with film_file:
        with _engine(start, connection) as engine_env:
            spec = engine_env.engine_spec
            if gif is not None:
                check_films(spec, "gif")
            if options is None:
                vec_env = engine_env
            else:
                vec_env = wrapped(options, engine_env)
            if policy is None:
                player = actor_of(str(actor), vec_env, seed)
            else:
                if vec_env is engine_env:
                    policy.require_spaces(spec, as_trainer=True)
                    if saved is not None and not any(policy.number_names):
                        check_order(saved, spec)
                else:
                    policy.require_masks(spec)
                player = InferencePolicy(policy, vec_env)
            if seed is not None:
                vec_env.seed(seed)
            recording: Any = nullcontext(vec_env)
            if record_demos is not None:
                from ue_rl.training.demonstrations.recording import RecordingVecEnv

                recording = RecordingVecEnv(vec_env, record_demos, episodes, algorithm_name=str(path or actor))

            last = vec_env.num_envs - 1  # it plays, however few episodes there are
            filming = gif is not None

            def film(local: dict[str, Any], _: Any) -> None:
                nonlocal filming
                if not filming or local["i"] != last or film_file.full:
                    return
                try:
                    picture = engine_env.env_method("render", indices=[last])[0]
                    if picture is not None:
                        film_file.add(picture)
                except Exception as error:  # noqa: BLE001 - what is played counts, whatever is drawn of it
                    filming = False
                    click.echo(f"the film ends here: {type(error).__name__}: {printable(str(error))}", err=True)

            with recording as seen:
                callback = None
                if gif:
                    callback = film
                played: Any = evaluate_policy(
                    player,
                    seen,
                    n_eval_episodes=episodes,
                    deterministic=True,
                    return_episode_rewards=True,
                    warn=False,
                    callback=callback,
                )
        rows = [
            {"episode": number, "return": float(value), "length": int(length)}
            for number, (value, length) in enumerate(zip(*played, strict=True))
        ]
        who = str(path or actor)
        _show(who, rows)
        if json_file is not None:
            json_file.write_text(json.dumps({"model": who, "seed": seed, "episodes": rows}, indent=2), "utf-8")
        if csv_file is not None:
            with csv_file.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["episode", "return", "length"])
                writer.writeheader()
                writer.writerows(rows)


def load_policy(model: Path, vecnormalize: Path | Literal[False] | None = None, seed: int | None = None) -> Any:
    """An InferenceInterface for an .onnx file, an SB3 zip, or the run or checkpoint that one of these is in.

    Args:
        vecnormalize: the statistics of a zip; None: those that lie beside it; False: none. seed: of a stochastic
            file's noise.

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
        return OnnxInference(model, seed=own_seed(seed, "noise"))
    if model.suffix == ".zip":
        require_statistics(model, vecnormalize)
        return Sb3Inference(model, vecnormalize)
    runs = [path.parent.name for path in model.parent.glob("*/config.yaml")]
    problem = "there is no such run or file"
    if model.exists():
        problem = "not a policy"
    raise WrongCommandLine(
        problem,
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


class InferencePolicy:
    """An InferenceInterface with SB3's predict(); the engine's action masks are given to a policy that heeds them."""

    def __init__(self, policy: Any, vec_env: Any) -> None:
        from ue_rl.inference import OnnxInference

        self._policy = policy
        self._space = vec_env.action_space
        masked = vec_env.engine_spec.mask_size > 0 and policy.takes_masks
        if masked:
            self._vec_env = vec_env
        else:
            self._vec_env = None
        self._seen = vec_env.observation_space
        self._sent = isinstance(policy, OnnxInference)  # a file takes what the engine sends

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """The policy's actions in the env's dtype and shape; the policy keeps its own recurrent state."""
        import numpy as np

        from ue_rl.envs.actions import as_trained

        if episode_start is not None and np.any(episode_start):
            begun = None
            if state is not None:
                begun = np.flatnonzero(episode_start).tolist()
            self._policy.reset(begun)
        if self._sent:
            observation = as_sent(observation, self._seen)
        masks = {}
        if self._vec_env is not None:
            masks = {"action_masks": np.stack(self._vec_env.env_method("action_masks"))}
        return as_trained(self._policy.run_inference(observation, **masks), self._space), True


def as_sent(observation: Any, space: Any) -> Any:
    """An observation that UnrealVecEnv gave, [n, ...] or a dict of such, as the engine named and numbered it."""
    if isinstance(observation, dict):
        names = getattr(space, "engine_names", {})
        return {names.get(key, key): as_sent(part, space.spaces[key]) for key, part in observation.items()}
    import numpy as np

    from ue_rl.protocol.spaces.engine_leaf import noted_leaf

    noted = noted_leaf(space)
    if noted is not None:
        rows = noted.form.from_trained(noted, np)(observation.reshape(len(observation), -1))
        observation = rows.reshape(-1, *noted.shape)
    if space.shape:
        return observation
    return observation.reshape(-1, 1)


@contextmanager
def _engine(start: Callable[..., Any] | None, connection: dict[str, Any]) -> Iterator[Any]:
    """Its VecEnv; `start`: makes the connection to one that is started here, None: it runs already."""
    from ue_rl.connections.dialling import open_transport
    from ue_rl.envs.vec_env import UnrealVecEnv

    names = ("url", "port", "trace", "trace_size", "max_episode_steps")
    url, port, trace, size, limit = (connection.pop(name) for name in names)
    if start is None:
        opened = open_transport(engine_url(url, port), **connection)
    else:
        opened = start(**connection)
    transport: Any = opened
    if trace is not None:
        from ue_rl.devtools.recording import RecordingTransport

        transport = RecordingTransport(transport, trace, size * 1_000_000)
    with closing(UnrealVecEnv(transport, max_episode_steps=limit)) as vec_env:
        yield vec_env


def _show(model: str, rows: list[dict[str, Any]]) -> None:
    import numpy as np

    table = table_of("episode", "return", "length", title=model)
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
