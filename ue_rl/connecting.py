"""`connect(url)`: from an address to a VecEnv. Beside the command line the one place where core and rooms meet.

tcp://HOST:PORT    the engine's text protocol; upgraded to shared memory where both sides can (transport="auto")
shm://NAME         an engine's shared memory, by name or by the path of a file; shm:// alone: $LUCKY_SHM_NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ue_rl.carriers.base import BaseTransport
from ue_rl.connections import SharedMemoryConnection, open_engine
from ue_rl.engines.url_engine import UrlEngine
from ue_rl.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing
from ue_rl.transport import closed_if_it_fails

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from ue_rl.engines.lifecycle import Listener
    from ue_rl.envs.controls import GoalReward
    from ue_rl.envs.gym_env import UnrealEnv
    from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.envs.vector_env import UnrealVectorEnv
    from ue_rl.launching.engine import LaunchedEngine

DEFAULT_PORT = 7777
SHM = "shm://"


def parse_tcp(url: str) -> tuple[str, int]:
    """("127.0.0.1", 7777) of "tcp://127.0.0.1:7777"; the port defaults to 7777. IPv6 in brackets.

    Raises:
        ConfigurationError: not such a URL.
    """
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "tcp" or not parts.hostname or not 0 < port < 65_536 or parts.path not in ("", "/"):
        raise _no_address(url)
    return parts.hostname, port


def _dial_tcp(url: str, transport: str, **options: Any) -> BaseTransport:
    host, port = parse_tcp(url)
    return open_engine(host, port, transport=transport, **options)


def _dial_shm(url: str, transport: str, **options: Any) -> BaseTransport:
    if transport not in ("auto", "shm") or options.pop("channel", "auto") != "auto":
        raise ConfigurationError(
            "this address is shared memory", field="transport", expected="transport='auto' or 'shm'", got=transport
        )
    for name in ("compiled", "nul_terminated"):  # of text only
        options.pop(name, None)
    return SharedMemoryConnection.attach(url.removeprefix(SHM) or None, **options)


class Carrier(NamedTuple):
    """What the addresses of one scheme mean.

    Attributes:
        form: for people.
        check: raises ConfigurationError where an address is none; nothing is dialled.
        dial: dial(url, transport, **options): a connected transport.
    """

    form: str
    check: Callable[[str], object]
    dial: Callable[..., BaseTransport]


CARRIERS = {
    "tcp": Carrier("tcp://HOST:PORT", parse_tcp, _dial_tcp),
    "shm": Carrier("shm://NAME", str, _dial_shm),
}


def carrier_of(url: str) -> Carrier:
    """The carrier that an address names; the address is checked.

    Raises:
        ConfigurationError: it names none.
    """
    carrier = CARRIERS.get(url.partition("://")[0])
    if carrier is None:
        raise _no_address(url)
    carrier.check(url)
    return carrier


def _no_address(url: str) -> ConfigurationError:
    forms = " or ".join(carrier.form for carrier in CARRIERS.values())
    return ConfigurationError("not an address of an engine", field="url", expected=forms, got=url)


def address_of(host: str | None, port: int | None) -> str:
    """The URL of --host (a name, ADDRESS:PORT, a URL or shm://NAME) and --port, as ue_rl.connect takes it."""
    address = (host or "127.0.0.1").removeprefix("tcp://")
    if "://" in address:
        return address
    if has_port(address):
        return f"tcp://{address}"
    if ":" in address:
        address = f"[{address.strip('[]')}]"
    return f"tcp://{address}:{port or DEFAULT_PORT}"


def has_port(host: str) -> bool:
    """Does it end in :PORT? An IPv6 address has its own colons, and brackets where a port follows."""
    address, colon, port = host.rpartition(":")
    return bool(colon and port.isdigit() and ("]" in address or ":" not in address))


def open_transport(
    url: str | Sequence[str],
    transport: str = "auto",
    *,
    reconnect: float = 0.0,
    max_restarts: int = 10,
    restart_window: float = 60.0,
    on_change: Listener | None = None,
    **options: Any,
) -> BaseTransport:
    """A connected transport for `url`; the arguments as for `connect`."""
    if isinstance(url, str) and not reconnect and on_change is None:
        return carrier_of(url).dial(url, transport, **options)
    from ue_rl.engines.restarts import Restarts
    from ue_rl.engines.transport import EnginesTransport

    engines = url_engines([url] if isinstance(url, str) else url, transport, reconnect=reconnect, **options)
    restarts = Restarts(max_restarts, restart_window) if reconnect else None
    carrier = EnginesTransport(engines, restarts=restarts, on_change=on_change)
    carrier.connect()
    return carrier


def url_engines(
    urls: Sequence[str], transport: str = "auto", *, reconnect: float = 0.0, **options: Any
) -> list[UrlEngine]:
    """The engines at these addresses, none of which has been dialled yet; arguments and errors as for `connect`."""
    twice = next((url for n, url in enumerate(urls) if url in urls[:n]), None)
    if twice is not None:
        raise ConfigurationError(
            "an engine serves one trainer, over one connection", field="url", expected="each address once", got=twice,
            cure="start a second engine on another port",
        )  # fmt: skip
    carriers = {url: carrier_of(url) for url in urls}  # raises, before the first one is dialled

    def engine_at(url: str) -> UrlEngine:
        def dial(wait: float | None, connect_timeout: float | None) -> BaseTransport:
            again = {} if wait is None else {"wait": wait, "connect_timeout": connect_timeout}
            return carriers[url].dial(url, transport, **{**options, **again})

        return UrlEngine(url, dial, reconnect)

    return [engine_at(url) for url in urls]


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
        url: "tcp://HOST:PORT", or "shm://NAME" for shared memory by name. A list connects to several engines as one:
            their envs stand one after the other. They may have different numbers of envs; their spaces must agree.
        transport: "auto" takes shared memory where the engine offers it on this machine, else TCP. "tcp" and "shm"
            take nothing else.
        max_episode_steps, monitor, copy, compute_reward, render_mode: see UnrealVecEnv.
        options: of the connection. timeout=30.0: seconds that a step may take. wait=0.0: seconds to wait until the
            engine listens. connect_timeout=None: seconds that the handshake may take. channel="auto": one socket for
            all envs ("shared") or one for each ("per_env"). nul_terminated=None: send a NUL byte after each line; None:
            only to the Unreal plugin's SINGLE and RLBASE. compiled=None: use the compiled codec where it is there.
            Of engines that are lost (docs/engines.md): reconnect=0.0: seconds to dial a lost engine again; 0: its loss
            is raised. max_restarts=10: how often within restart_window=60.0 seconds, for each engine. on_change=None:
            called with each ue_rl.engines.lifecycle.Change.

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
    from ue_rl.launching.engine import LaunchedEngine  # psutil
    from ue_rl.launching.presets import template

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
    options.setdefault("connect_timeout", start_timeout)

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
    max_restarts: int = 10,
    restart_window: float = 60.0,
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
        max_restarts: how often a lost engine is started again within `restart_window` seconds of play; 0: never.
        on_change: called with each ue_rl.engines.lifecycle.Change.
        transport, max_episode_steps, monitor, copy, compute_reward, render_mode, options: as for `connect`.

    Raises:
        ConfigurationError: a wrong argument or command. EngineNotStarted: with what an engine printed last.
            Also what `connect` raises.
    """
    with named_if_missing("ue_rl.launch"):
        from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.engines.restarts import Restarts
    from ue_rl.engines.transport import EnginesTransport

    engines = launched(
        command, num_engines=num_engines, num_envs=num_envs, seed=seed, output_dir=output_dir,
        start_timeout=start_timeout, transport=transport, **options,
    )  # fmt: skip
    restarts = Restarts(max_restarts, restart_window) if max_restarts else None
    carrier = EnginesTransport(engines, restarts=restarts, on_change=on_change)
    return UnrealVecEnv(
        carrier, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
        render_mode=render_mode,
    )  # fmt: skip
