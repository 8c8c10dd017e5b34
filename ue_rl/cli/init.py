"""`ue-rl init`: looks at an engine and writes what a training of it begins with: train.yaml, train.py, a search."""

from __future__ import annotations

import re
from contextlib import closing
from importlib.resources import files as files_of
from pathlib import Path

import click
import numpy as np

from ue_rl.cli.common import engine_argument, engine_url, timeout_option
from ue_rl.cli.inspect_spaces import observation, tree_text
from ue_rl.protocol.spec import ActionKind, EnvSpec
from ue_rl.system.errors import ConfigurationError, printable
from ue_rl.system.plugins import load_plugin

_YAML = """\
# A training of the engine at {url}:
#
#     ue-rl train --config {config}
#
# {num_envs} envs{agents}. Observation: {observation}. What is commented out is the default or an example;
# every flag of `ue-rl train --help` may stand here, with underscores.

url: {url}
algo: {algo}  # {why}
timesteps: 200000  # env-steps, of all envs together
seed: 0  # the same seed gives the same run{seedless}

{normalize}
hyperparameters:  # arguments of the algorithm
  learning_rate: 0.0003
  gamma: 0.99
  # n_steps: 256  # steps of each env between two updates; with {num_envs} envs that is {batch} env-steps
  # net_arch: [64, 64]

{limit}
{params}
# save_freq: 50000  # env-steps between two checkpoints, beside those of every 5 minutes
# reconnect: 60s  # how long a lost engine is dialled again
"""
_SCRIPT = '''\
"""Trains on the engine at {url}. Stop it with Ctrl-C and run it again: it goes on where it was."""

import torch
{importing}

import ue_rl
from ue_rl.inference import export_onnx

torch.set_num_threads(1)  # small nets are faster so
env = ue_rl.connect("{url}")
autosave = ue_rl.AutoSave("runs/agent")
model = autosave.resume({algorithm}, env) or {algorithm}("{policy}", env, seed=0)
model.learn(200_000, callback=autosave)
export_onnx(model, "agent.onnx")  # what the game loads
env.close()
'''
_SEARCH = "optuna_search.py"


@click.command(short_help="Write a config and a script for an engine.")
@engine_argument
@click.option(
    "--output",
    default=".",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The folder that they are written into.  [default: this one]",
)
@click.option("--tune", is_flag=True, help=f"Write {_SEARCH}, too: a search for hyperparameters.")
@click.option(
    "--page",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write a web page with a game to begin with, and look at no engine.",
)
@click.option("--force", is_flag=True, help="Replace files of these names if they are there.")
@timeout_option(10.0, "How long to wait for the engine.")
def init(
    url: str | None, port: int | None, output: Path, tune: bool, page: Path | None, force: bool, timeout: float
) -> None:
    """Connect to an engine and write train.yaml and train.py for it."""
    from ue_rl.connections.dialling import open_transport

    if page is not None:
        if (url, port, tune) != (None, None, False):
            raise click.UsageError("--page writes a game, and looks at no engine: leave the others out")
        for sentence in load_plugin("ue_rl.games", "page")(page, force):
            click.echo(sentence)
        return
    address = engine_url(url, port)
    files = {output / "train.yaml": _config, output / "train.py": _script}
    if tune:
        files[output / _SEARCH] = _search
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ConfigurationError(
            "there is such a file", field="output", got=there[0], cure="name another folder, or replace it: --force"
        )
    with closing(open_transport(address, timeout=timeout)) as engine:
        spec = engine.connect()
    if len(spec.groups) > 1:
        raise ConfigurationError(
            "the envs of this engine hold several groups of agents, each of which needs a policy",
            got=", ".join(group.name for group in spec.groups),
            cure="see docs/agents.md",
        )
    output.mkdir(parents=True, exist_ok=True)
    for path, write in files.items():
        path.write_text(write(address, output, spec), "utf-8")
        click.echo(f"wrote {path}")
    click.echo(f"then: ue-rl train --config {output / 'train.yaml'}")
    if tune:
        click.echo(f"or: python {output / _SEARCH} {address}  (needs Optuna: pip install optuna)")


def _config(url: str, output: Path, spec: EnvSpec) -> str:
    masked = spec.mask_size > 0
    if spec.groups:
        one = spec.groups[0].spec
    else:
        one = spec
    others = "a2c; dqn for one choice"
    if one.action_spec.kind is ActionKind.BOX:
        others = "sac, td3 or a2c"
    agents = ""
    if spec.groups:
        agents = f", {spec.agents_per_env} agents in each"
    algo = "ppo"
    if masked:
        algo = "maskable_ppo"
    text = _YAML.format(
        url=url,
        config=output / "train.yaml",
        num_envs=spec.num_envs,
        batch=256 * spec.num_rows,
        agents=agents,
        observation=printable(" ".join(tree_text(observation(one), ()).split()))[:80],
        algo=algo,
        why="the engine says which choices are legal: PPO that heeds it" if masked else f"or {others}",
        seedless="" if "SEED" in spec.features else "; this engine takes none: its episodes differ all the same",
        normalize=_normalize(one),
        limit=_limit(spec),
        params=_params(spec),
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _limit(spec: EnvSpec) -> str:
    if "TRUNC" in spec.features:
        return "# The engine says itself when an episode is cut off.\n"
    return (
        "# The engine cannot say that an episode is cut off and not over: this counts its steps instead.\n"
        "# max_episode_steps: 1000\n"
    )


def _normalize(spec: EnvSpec) -> str:
    unbounded = spec.obs_space is None and spec.image is None and not all(np.isfinite(spec.obs_bounds).ravel())
    if unbounded:
        return "normalize: true  # observations have no bounds: their mean and deviation are learnt too\n"
    return "# normalize: true  # learns the mean and deviation of observations and rewards\n"


def _params(spec: EnvSpec) -> str:
    if not spec.parameters:
        return ""
    lines = ["# The game's parameters: a value, or a range from which each episode draws.", "# params:"]
    for parameter in spec.parameters:
        lines.append(f"#   {printable(parameter.name)}: {parameter.value:g}  # {parameter.low:g} to {parameter.high:g}")
    return "\n".join(lines) + "\n"


def _script(url: str, output: Path, spec: EnvSpec) -> str:
    masked = spec.mask_size > 0
    policy = "MlpPolicy"
    if spec.obs_space is not None and spec.obs_space.parts:
        policy = "MultiInputPolicy"
    elif spec.image is not None:
        policy = "MultiInputPolicy"
        if spec.image.only or spec.obs_space is not None:
            policy = "CnnPolicy"
    algorithm = "PPO"
    if masked:
        algorithm = "MaskablePPO"
    return _SCRIPT.format(
        url=url,
        algorithm=algorithm,
        policy=policy,
        importing=f"from {'sb3_contrib' if masked else 'stable_baselines3'} import {algorithm}",
    )


def _search(url: str, output: Path, spec: EnvSpec) -> str:
    """The recipe as it stands in samples/recipes: here it is a link, so that there is one text, and a wheel has it."""
    return files_of("ue_rl.cli").joinpath("optuna_search.txt").read_text("utf-8")
