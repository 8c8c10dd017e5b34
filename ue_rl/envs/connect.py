"""`connect(url)` and `launch(command)`: from an address, or a program, to a VecEnv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ue_rl.connections.dialling import address_of, handler_of, open_transport
from ue_rl.protocol.transport import closed_if_it_fails
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from ue_rl.connections.engines.lifecycle import Listener
    from ue_rl.envs.controls import GoalReward
    from ue_rl.envs.gym_env import UnrealEnv
    from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.envs.vector_env import UnrealVectorEnv


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

    connection = open_transport(url, transport, **options)
    return UnrealVecEnv(
        connection, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
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

    connection = open_transport(url, transport, **options)
    return UnrealEnv(connection, render_mode=render_mode, compute_reward=compute_reward)


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

    if num_envs is not None and isinstance(url, str) and "num_envs" in handler_of(address_of(url).scheme).scheme.keys:
        options["num_envs"] = num_envs  # it has as many as one asks for
    connection = open_transport(url, transport, **options)
    with closed_if_it_fails(connection):
        count = connection.connect().num_envs
        if num_envs is not None and num_envs != count:
            raise ConfigurationError(
                "the engine has another number of envs", field="num_envs", expected=count, got=num_envs,
                cure=f"pass num_envs={count}: the engine decides how many it has",
            )  # fmt: skip
        modes = {}
        if autoreset_mode is not None:
            modes["autoreset_mode"] = autoreset_mode
        return UnrealVectorEnv(connection, render_mode=render_mode, **modes)


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
    from ue_rl.connections.launching.starting import launched  # psutil

    engines = launched(
        command, num_engines=num_engines, num_envs=num_envs, seed=seed, output_dir=output_dir,
        start_timeout=start_timeout, transport=transport, **options,
    )  # fmt: skip
    connection = EnginesTransport(engines, restarts=Restarts.of(restarts), on_change=on_change)
    return UnrealVecEnv(
        connection, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
        render_mode=render_mode,
    )  # fmt: skip
