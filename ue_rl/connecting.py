"""`connect(url)`: from an address to a VecEnv. Beside the command line the one place where core and rooms meet.

tcp://HOST:PORT    the engine's text protocol; upgraded to shared memory where both sides can (transport="auto")
tls://HOST:PORT    the same text within TLS
shm://NAME         an engine's shared memory, by name or by the path of a file; shm:// alone: $LUCKY_SHM_NAME
grpc://HOST:PORT   sessions of a game (`ue-rl sessions`), as many as num_envs says
grpcs://HOST:PORT  the same within TLS

Behind a "?" stand options of the connection: tcp://HOST:PORT?channel=per-env (connections/base/address.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from ue_rl.connections.base.address import Address, Scheme, host_and_port, named, read_address, split_place
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.protocol.transport import closed_if_it_fails
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from ue_rl.connections.engines.lifecycle import Listener
    from ue_rl.connections.launching.engine import LaunchedEngine
    from ue_rl.envs.controls import GoalReward
    from ue_rl.envs.gym_env import UnrealEnv
    from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.envs.vector_env import UnrealVectorEnv


class Hosting(NamedTuple):
    """How `ue-rl serve` hosts a bridge at an address.

    Attributes:
        function: MODULE:FUNCTION; FUNCTION(bridge, ready=.., tick_rate=.., **arguments) serves until a signal comes.
        place: as Scheme.place, where one listens.
        arguments: of the function, for such a place.
        takes: further ones that it has: "upgrader" (offers shared memory), "doorway" (TLS and tokens).
    """

    function: str
    place: Callable[[str], str]
    arguments: Callable[[str], dict[str, Any]]
    takes: tuple[str, ...] = ()


class Carrier(NamedTuple):
    """What the addresses of one scheme mean, to both sides.

    Attributes:
        scheme: how they are written.
        dial: MODULE:FUNCTION, imported when such an address is dialled; FUNCTION(place, transport, **options) is a
            connected transport. It gets the options of `connect` that the address or the caller names; those that its
            carrier has no use for are its to leave out or to refuse.
        hosting: the engine's side; None: `ue-rl serve` has none.
        text_at: the socket's address on which such a place speaks plain text; None: it speaks something else.
    """

    scheme: Scheme
    dial: str
    hosting: Hosting | None = None
    text_at: Callable[[str], tuple[str, int]] | None = None

    def load(self, what: str) -> Callable[..., BaseTransport]:
        """The function; raises MissingPackage: `what` lacks an extra."""
        with named_if_missing(what):
            function: Callable[..., BaseTransport] = resolve_name(self.dial)
        return function


_DEADLINES = ("timeout", "connect_timeout", "wait")
_TEXT = ("channel", "nul_terminated", "token_file", *_DEADLINES)
_SESSIONS = ("num_envs", "ticks", "token_file", "ca", "cert", "key", *_DEADLINES)
CARRIERS = {
    "tcp": Carrier(
        Scheme("tcp://HOST:PORT", "tcp://127.0.0.1:7777", host_and_port, ("transport", *_TEXT)),
        "ue_rl.connections.opening:dial_tcp",
        Hosting(
            "ue_rl.bridges:serve",
            partial(host_and_port, lowest=0),
            lambda place: dict(zip(("host", "port"), split_place(place, 0), strict=True)),
            ("upgrader", "doorway"),
        ),
        text_at=split_place,
    ),
    "tls": Carrier(
        Scheme("tls://HOST:PORT", "tls://10.0.0.5:7777?ca=ours.pem", host_and_port, (*_TEXT, "ca", "cert", "key")),
        "ue_rl.connections.opening:dial_tls",
    ),
    "shm": Carrier(
        Scheme("shm://NAME", "shm://arena", str, _DEADLINES),
        "ue_rl.connections.shm.dialling:dial",
        Hosting("ue_rl.bridges:serve_shm", named, lambda place: {"name": place}),
    ),
    "grpc": Carrier(
        Scheme("grpc://HOST:PORT", "grpc://127.0.0.1:9999", host_and_port, _SESSIONS),
        "ue_rl.connections.grpc.dialling:dial",
    ),
    "grpcs": Carrier(
        Scheme("grpcs://HOST:PORT", "grpcs://10.0.0.5:9999?ca=ours.pem", host_and_port, _SESSIONS),
        "ue_rl.connections.grpc.dialling:dial_tls",
    ),
}


def address_of(url: str) -> Address:
    """What an engine's URL says; nothing is dialled; raises ConfigurationError: names the part of it that is wrong."""
    return read_address(url, {name: carrier.scheme for name, carrier in CARRIERS.items()})


def dial(address: Address, transport: str = "auto", **options: Any) -> BaseTransport:
    """A connected transport; what the address says itself goes before the arguments, which are those of `connect`."""
    function = CARRIERS[address.scheme].load(f"{address.scheme}://")
    return function(address.place, **{"transport": transport, **options, **address.options})


def open_transport(
    url: str | Sequence[str],
    transport: str = "auto",
    *,
    reconnect: float = 0.0,
    restarts: str | int = "10/60s",
    on_change: Listener | None = None,
    **options: Any,
) -> BaseTransport:
    """A connected transport for `url`; the arguments as for `connect`."""
    if not reconnect and restarts != "10/60s":
        what = "restarts says how often a lost engine is dialled again, and none is"
        raise ConfigurationError(what, field="restarts", got=restarts, cure="give reconnect=60.0 too, or leave it out")
    if isinstance(url, str) and not reconnect and on_change is None:
        return dial(address_of(url), transport, **options)
    from ue_rl.connections.engines.restarts import Restarts
    from ue_rl.connections.engines.transport import EnginesTransport

    engines = url_engines([url] if isinstance(url, str) else url, transport, reconnect=reconnect, **options)
    quota = Restarts.of(restarts) if reconnect else None
    carrier = EnginesTransport(engines, restarts=quota, on_change=on_change)
    carrier.connect()
    return carrier


def url_engines(
    urls: Sequence[str], transport: str = "auto", *, reconnect: float = 0.0, **options: Any
) -> list[UrlEngine]:
    """The engines at these addresses, none of which has been dialled yet; arguments and errors as for `connect`."""
    addresses = [address_of(url) for url in urls]  # raises, before the first one is dialled
    named = [address.url for address in addresses]
    twice = next((url for n, url in enumerate(named) if url in named[:n]), None)
    if twice is not None:
        raise ConfigurationError(
            "an engine serves one trainer, over one connection", field="url", expected="each address once", got=twice,
            cure="start a second engine on another port",
        )  # fmt: skip

    def engine_at(address: Address) -> UrlEngine:
        def dial_it(wait: float | None, connect_timeout: float | None) -> BaseTransport:
            if wait is None:
                return dial(address, transport, **options)
            again = Address(*address[:2], {**address.options, "wait": wait, "connect_timeout": connect_timeout})
            return dial(again, transport, **options)

        return UrlEngine(address.url, dial_it, reconnect)

    return list(map(engine_at, addresses))


def connect(
    url: str | Sequence[str],
    transport: str = "auto",
    *,
    max_episode_steps: int | None = None,
    monitor: bool = True,
    copy: bool = True,
    compute_reward: GoalReward | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> UnrealVecEnv:
    """Connects to a running engine and returns its envs as one VecEnv of Stable-Baselines3.

        env = ue_rl.connect("tcp://127.0.0.1:7777")
        model = PPO("MlpPolicy", env).learn(100_000)

    Args:
        url: "tcp://HOST:PORT", "shm://NAME" for shared memory by name, or "grpc://HOST:PORT" for sessions. Options of
            one engine may stand behind a "?": "tcp://HOST:PORT?channel=per-env&timeout=2min"; they go before the
            arguments. A list connects to several engines as one: their envs stand one after the other. They may have
            different numbers of envs; their spaces must agree.
        transport: "auto" takes shared memory where the engine offers it on this machine, else TCP. "tcp" and "shm"
            take nothing else.
        max_episode_steps, monitor, copy, compute_reward, render_mode: see UnrealVecEnv.
        options: of the connection. timeout=30.0: seconds that a step may take. wait=0.0: seconds to wait until the
            engine listens. connect_timeout=None: seconds that the handshake may take. channel="auto": one socket for
            all envs ("shared") or one for each ("per_env"). nul_terminated=None: send a NUL byte after each line; None:
            only to the Unreal plugin's SINGLE and RLBASE. compiled=None: use the compiled codec where it is there.
            token_file=None: a secret of both sides (docs/security.md). Of tls:// and gRPC: ca=None, cert=None,
            key=None: PEM files: whom to trust instead of the system's list, and what this side shows.
            Of gRPC: num_envs=1: sessions, each an env. game=None: the one that is served. ticks=1: of each step.
            Of engines that are lost (docs/engines.md): reconnect=0.0: seconds to dial a lost engine again; 0: its loss
            is raised. restarts="10/60s": how often within how long, for each engine. on_change=None: called with each
            ue_rl.connections.engines.lifecycle.Change.

    Raises:
        ConfigurationError: a wrong argument.
        EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError, SegmentInvalid, UnsupportedByEngine: see
            docs/troubleshooting.md, by error.
    """
    with named_if_missing("ue_rl.connect"):  # Stable-Baselines3, which `open_transport` does not need
        from ue_rl.envs.vec_env import UnrealVecEnv

    carrier = open_transport(url, transport, **options)
    return UnrealVecEnv(
        carrier, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
        render_mode=render_mode,
    )  # fmt: skip


def make_env(
    url: str | Sequence[str],
    transport: str = "auto",
    *,
    render_mode: str | None = None,
    compute_reward: GoalReward | None = None,
    **options: Any,
) -> UnrealEnv:
    """What gymnasium.make("ue_rl/Engine-v0", url=..) makes: an engine's one env. Arguments and errors as `connect`."""
    with named_if_missing("ue_rl.UnrealEnv"):
        from ue_rl.envs.gym_env import UnrealEnv

    carrier = open_transport(url, transport, **options)
    return UnrealEnv(carrier, render_mode=render_mode, compute_reward=compute_reward)


def make_vector_env(
    url: str | Sequence[str],
    num_envs: int | None = None,
    transport: str = "auto",
    *,
    autoreset_mode: AutoresetMode | str | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> UnrealVectorEnv:
    """What gymnasium.make_vec("ue_rl/Engine-v0", num_envs=.., url=..) makes.

    Args:
        num_envs: must be the engine's number of envs; None: whatever that is. autoreset_mode: None: NEXT_STEP.
        url, transport, render_mode, options: as for `connect`.

    Raises:
        ConfigurationError: the engine has another number of envs. Otherwise as `connect`.
    """
    with named_if_missing("ue_rl.UnrealVectorEnv"):
        from ue_rl.envs.vector_env import UnrealVectorEnv

    if num_envs is not None and isinstance(url, str) and "num_envs" in CARRIERS[address_of(url).scheme].scheme.keys:
        options["num_envs"] = num_envs  # it has as many as one asks for
    carrier = open_transport(url, transport, **options)
    with closed_if_it_fails(carrier):
        count = carrier.connect().num_envs
        if num_envs is not None and num_envs != count:
            raise ConfigurationError(
                "the engine has another number of envs", field="num_envs", expected=count, got=num_envs,
                cure=f"pass num_envs={count}: the engine decides how many it has",
            )  # fmt: skip
        modes = {} if autoreset_mode is None else {"autoreset_mode": autoreset_mode}
        return UnrealVectorEnv(carrier, render_mode=render_mode, **modes)


def launched(
    command: str | Sequence[str],
    *,
    num_engines: int = 1,
    num_envs: int | None = None,
    seed: int | None = None,
    output_dir: str | Path | None = None,
    start_timeout: float = 120.0,
    transport: str = "auto",
    **options: Any,
) -> list[LaunchedEngine]:
    """The engines that `launch` starts, none of which has been started yet; arguments and errors as there."""
    from ue_rl.connections.launching.engine import LaunchedEngine  # psutil
    from ue_rl.connections.launching.template import template

    words = template(command, [name for name, value in (("num_envs", num_envs), ("seed", seed)) if value is None])
    if num_engines < 1:
        raise ConfigurationError("there must be one engine at least", field="num_engines", got=num_engines)
    if num_envs is not None and num_envs < 1:
        raise ConfigurationError("an engine has one env at least", field="num_envs", got=num_envs)
    if not 0 < start_timeout < float("inf"):
        raise ConfigurationError("a deadline must be positive and finite", field="start_timeout", got=start_timeout)
    if num_engines > 1 and not words.uses("port"):
        raise ConfigurationError(
            f"{num_engines} engines cannot listen on the same port", field="engine", expected="{port} in the command",
            got=" ".join(words.words), cure="put {port} where the game takes its port: each engine gets one of its own",
        )  # fmt: skip
    if options.get("connect_timeout") is None:
        options["connect_timeout"] = start_timeout

    def dial(url: str) -> BaseTransport:
        return open_transport(url, transport, **options)

    folder = None if output_dir is None else Path(output_dir)
    return [
        LaunchedEngine(
            words, num_envs, seed, number, None if folder is None else folder / f"engine-{number}.log", dial,
            start_timeout,
        )
        for number in range(num_engines)
    ]  # fmt: skip


def launch(
    command: str | Sequence[str],
    num_engines: int = 1,
    num_envs: int | None = None,
    *,
    seed: int | None = None,
    output_dir: str | Path | None = None,
    start_timeout: float = 120.0,
    restarts: str | int = "10/60s",
    on_change: Listener | None = None,
    transport: str = "auto",
    max_episode_steps: int | None = None,
    monitor: bool = True,
    copy: bool = True,
    compute_reward: GoalReward | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> UnrealVecEnv:
    """Starts engines, connects to all of them, and returns their envs as one VecEnv of Stable-Baselines3.

        env = ue_rl.launch("./Game.sh --port {port} --envs {num_envs}", num_engines=4, num_envs=16)  # 64 envs

    They end with `close()`, and whenever this process ends.

    Args:
        command: starts an engine, without a shell. {port}, {num_envs}, {seed} and {engine} (its number, from 0) are
            filled in. It may be a list of words, or a preset such as "godot:PATH" (docs/engines.md). A program that
            listens on 7777 and takes no {port} can be started once.
        num_engines: how many engines to start. num_envs: envs of each; None: what the game has.
        seed: {seed} of the first engine. Other engines and later starts get other numbers that follow from it.
        output_dir: folder for what the engines print: engine-0.log and so on. None: it is shown in errors only.
        start_timeout: seconds that an engine may take to listen, and again to shake hands.
        restarts: how often a lost engine is started again within how long of play, such as "10/60s"; 0: never.
        on_change: called with each ue_rl.connections.engines.lifecycle.Change.
        transport, max_episode_steps, monitor, copy, compute_reward, render_mode, options: as for `connect`.

    Raises:
        ConfigurationError: a wrong argument or command. EngineNotStarted: with what an engine printed last.
            Also what `connect` raises.
    """
    with named_if_missing("ue_rl.launch"):
        from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.connections.engines.restarts import Restarts
    from ue_rl.connections.engines.transport import EnginesTransport

    engines = launched(
        command, num_engines=num_engines, num_envs=num_envs, seed=seed, output_dir=output_dir,
        start_timeout=start_timeout, transport=transport, **options,
    )  # fmt: skip
    carrier = EnginesTransport(engines, restarts=Restarts.of(restarts), on_change=on_change)
    return UnrealVecEnv(
        carrier, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
        render_mode=render_mode,
    )  # fmt: skip
