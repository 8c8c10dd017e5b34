"""`ue-rl rllink`: lets an engine's envs play for an RLlib learner, over RLlink."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ue_rl.cli import completion
from ue_rl.cli.common import PortNumber, WrongCommandLine, command_line, duration_option, json_object, lasting_console
from ue_rl.system.errors import printable

if TYPE_CHECKING:
    from ue_rl.connections.engines.transport import EnginesTransport
    from ue_rl.plugins.rllib.rllink.player import CollectedSample

_RECENT = 100  # episodes of the mean return


@click.command(short_help="Play for an RLlib learner, over RLlink.")
@click.option(
    "--host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address of RLlib's server; it listens on its own machine only.",
)
@click.option(
    "--port",
    type=PortNumber(),
    default=5555,
    show_default=True,
    help="env_config's port, plus the env runner's number.",
)
@click.option("--env", metavar="ID", help="Play in this Gymnasium env.")
@click.option("--env-kwargs", default="{}", metavar="JSON", help="Arguments for --env, as a JSON object.")
@click.option(
    "--engine",
    metavar="COMMAND",
    shell_complete=completion.engine,
    help="Start engines by this, as `ue-rl train` does.",
)
@click.option(
    "--url",
    metavar="URL",
    shell_complete=completion.url,
    multiple=True,
    help="A running engine, such as tcp://HOST:PORT; once for each.",
)
@click.option(
    "--num-envs", type=click.IntRange(1), default=8, show_default=True, help="How many envs each started engine has."
)
@click.option(
    "--num-engines",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many engines to start; each is a process.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the actions and of each env's first episode.")
@click.option("--steps", type=click.IntRange(1), help="Stop after this many env-steps.  [default: never]")
@click.option(
    "--dialect",
    type=click.Choice(["auto", "msgpack", "json"]),
    default="auto",
    show_default=True,
    help="json for Ray 2.41 to 2.48, msgpack from 2.49 on.",
)
@click.option(
    "--steps-per-sample", type=click.IntRange(1), help="env-steps in a message, instead of what RLlib asks for."
)
@click.option(
    "--activation", metavar="NAME", help="Activation of the policy, instead of what RLlib says: tanh, relu, silu .."
)
@click.option(
    "--default-network",
    is_flag=True,
    help="Play with RLlib's default module, whatever its config names.",
)
@duration_option("--timeout", default=300.0, help="How long RLlib may take to learn.")
@duration_option("--wait", default=60.0, zero=True, help="How long to wait until RLlib listens.")
@duration_option("--reconnect", default=60.0, zero=True, help="How long RLlib is dialled again when it went away.")
@click.option(
    "--restarts",
    metavar="TIMES/WINDOW",
    default="10/60s",
    show_default=True,
    help="How often a lost engine is started again, within how long of play; 0: never.",
)
def rllink(steps: int | None, host: str, port: int, seed: int | None, **flags: Any) -> None:
    """Play with the policy of an RLlib learner, and send it the episodes (docs/rllink.md). Ctrl-C stops."""
    from ue_rl.plugins.rllib.rllink.client import RLlinkClient
    from ue_rl.plugins.rllib.rllink.messages import ServerConfig

    screen = lasting_console()
    own_code = None
    if flags["default_network"]:
        own_code = ()
    said = ServerConfig(flags["steps_per_sample"], flags["activation"], own_code=own_code)
    with ExitStack() as stack:
        with command_line():
            engines = _engines(seed, flags)
        stack.callback(engines.close)
        client = RLlinkClient(
            engines,
            host,
            port,
            dialect=flags["dialect"],
            timeout=flags["timeout"],
            wait=flags["wait"],
            reconnect=flags["reconnect"],
            said=said,
            seed=seed,
        )
        stack.callback(client.close)
        client.connect()
        spec = engines.spec
        config = client.config
        assert config is not None
        learner = config.algorithm
        if not learner:
            learner = "an algorithm"
        wants = f"it wants {config.steps_per_sample:,} env-steps at a time; its network: {config.activation}"
        screen.print(printable(f"{spec.num_envs} envs play for RLlib on {host}:{port} ({learner}); {wants}"))
        client.run(steps, on_sample=_Told(screen))
        screen.print("done")


def _engines(seed: int | None, flags: dict[str, Any]) -> EnginesTransport:
    from ue_rl.connections.engines.restarts import Restarts
    from ue_rl.training.engine import engines_at, engines_started, serve_command

    given = [name for name in ("env", "engine", "url") if flags[name]]
    if len(given) != 1:
        expected = "one of --env, --engine and --url"
        got = ", ".join(f"--{name}" for name in given)
        if not got:
            got = "none of them"
        raise WrongCommandLine("say which engine plays", field="env", expected=expected, got=got)
    if flags["env_kwargs"] != "{}" and not flags["env"]:
        raise WrongCommandLine("--env-kwargs is for --env", field="env_kwargs", cure="leave it out")
    if flags["url"]:
        context = click.get_current_context(silent=True)
        for name in ("num_envs", "num_engines"):
            if context is not None and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
                what = "an engine that runs has its own number of envs"
                cure = "leave it out"
                raise WrongCommandLine(what, field=name, got=flags[name], cure=cure)
    restarts = Restarts.of(flags["restarts"])
    if flags["url"]:
        return engines_at(flags["url"], restarts, reconnect=flags["reconnect"])
    command = flags["engine"] or serve_command(flags["env"], json_object(flags["env_kwargs"], "env_kwargs"))
    first_seed = seed
    if not first_seed:
        first_seed = 0
    return engines_started(
        command, restarts, num_envs=flags["num_envs"], seed=first_seed, num_engines=flags["num_engines"]
    )


class _Told:
    """A line for each message that RLlib has answered."""

    def __init__(self, screen: Any) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._steps, self._recent = 0, list[float]()

    def __call__(self, sample: CollectedSample) -> None:
        self._steps += sample.steps
        self._recent = [*self._recent, *sample.returns][-_RECENT:]
        took = time.monotonic() - self._began
        mean = "-"
        if self._recent:
            mean = f"{sum(self._recent) / len(self._recent):.1f}"
        self._screen.print(
            f"{self._steps:,} env-steps, {self._steps / took:,.0f} a second with RLlib's learning, return {mean}, "
            f"weights {sample.seq}"
        )
