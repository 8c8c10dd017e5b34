"""Any host in a thread, in a process of its own, or until Ctrl-C.

with run_in_thread(bridge) as engine:            engine.url == "tcp://127.0.0.1:.."; tests, notebooks
with run_in_process(make_bridge) as engine:      a process of its own, as a real engine is
with run_shm_in_thread(bridge) as engine:        engine.url == "shm://ue_rl_.."
with run_shm_in_process(make_bridge) as engine:
serve(bridge, port=7777), serve_shm(bridge)      until Ctrl-C
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from ue_rl.bridges.factories import packed, unpacked
from ue_rl.bridges.host import Host
from ue_rl.bridges.shm.host import ShmHost
from ue_rl.bridges.tcp.server import BridgeServer
from ue_rl.system.closing import Closing
from ue_rl.system.errors import ConfigurationError, EngineTimeout, UeRlError
from ue_rl.system.processes import out_of_ctrl_c
from ue_rl.system.threads import start_thread

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_MAIN = '`if __name__ == "__main__":`'
_GUARD = f"call it under {_MAIN}, because a new process imports the main module"
_STARTED_BY_IMPORT = 86  # exit code of a process that found itself starting another one
_AT_EXIT = 2.0  # seconds that a host in a thread has to close when the program ends without close()

_Host = TypeVar("_Host", bound=Host)
# (bridge, options, stop, ready): serves until `stop` is set (None: until Ctrl-C); ready(host): trainers can connect now
Serve = Callable[["BaseBridge", dict[str, Any], "threading.Event | None", Callable[[Any], None]], None]
_CURES = {
    errno.EADDRINUSE: "Another program, perhaps this one, listens there: end it, or give another port=",
    errno.EADDRNOTAVAIL: "Give an address of this machine, such as 127.0.0.1",
    errno.EACCES: "Give a port= from 1024 on",
}
_NAMES = ("SIGTERM", "SIGHUP", "SIGBREAK")  # SIGBREAK: a closed console on Windows


def over_tcp(
    bridge: BaseBridge, options: dict[str, Any], stop: threading.Event | None, ready: Callable[[BridgeServer], None]
) -> None:
    """A BridgeServer in an event loop of its own."""

    async def main() -> None:
        async with BridgeServer(bridge, **options) as server:
            ready(server)
            await _until(stop)

    run_loop(main())


def over_shm(
    bridge: BaseBridge, options: dict[str, Any], stop: threading.Event | None, ready: Callable[[ShmHost], None]
) -> None:
    """A ShmHost."""
    with ShmHost(bridge, **options) as host:
        ready(host)
        host.run(stop)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, but on Windows too on an event loop that can give a socket away, as an upgrade needs it."""
    loop = asyncio.SelectorEventLoop()
    task = loop.create_task(main)
    try:
        loop.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(asyncio.CancelledError):
            if task.done():  # the interrupt came from within it; to wait for it again would never return
                task.exception()  # so that asyncio does not log it as never retrieved
            else:
                task.cancel()
                loop.run_until_complete(task)
        raise
    finally:
        loop.close()


async def _until(stop: threading.Event | None) -> None:
    if stop is None:
        while True:
            await asyncio.sleep(0.5)  # on Windows Ctrl-C is seen only when the selector returns
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        stop.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, name="ue_rl-stop", daemon=True).start()
    await over.wait()


class _Handle(Closing):
    """A running engine."""

    url: str

    @property
    def port(self) -> int:
        """Where it listens, over TCP."""
        return urlsplit(self.url).port or 0

    @property
    def name(self) -> str:
        """The segment's, over shared memory."""
        return self.url.removeprefix("shm://")


class ThreadHandle(_Handle, Generic[_Host]):
    """A host in a thread of this process.

    Attributes:
        bridge: the hosted bridge. host: its BridgeServer or ShmHost. url: what a trainer connects to.

    Raises:
        what the host raises where it cannot start.
    """

    host: _Host
    server: _Host  # the same

    def __init__(self, serve: Serve, bridge: BaseBridge, options: dict[str, Any]) -> None:
        self.bridge = bridge
        self._stop = threading.Event()

        def run(ready: Callable[[], None]) -> None:
            def serves(host: _Host) -> None:
                self.host = self.server = host
                ready()

            serve(bridge, options, self._stop, serves)

        self._thread = start_thread("ue_rl-engine", run)
        self.url = self.host.url
        atexit.register(self._at_exit)

    def close(self) -> None:
        """Stops serving and joins the thread; idempotent. From a callback of the game: once that has returned."""
        atexit.unregister(self._at_exit)
        self._stop.set()
        # a callback cannot wait for the thread that waits for it
        if threading.current_thread() is not self._thread and self.bridge.lockstep.caller != threading.get_ident():
            self._thread.join()

    def _at_exit(self) -> None:
        """A program that ends without close() leaves no segment behind."""
        self._stop.set()
        self._thread.join(_AT_EXIT)


class ProcessHandle(_Handle):
    """A host in a process of its own, which ends with this handle or with the process that started it.

    Args:
        serve: a function of a module, run in the other process.
        factory: makes the bridge there; see `packed`. timeout: seconds to start.

    Attributes:
        url: what a trainer connects to. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory cannot be sent there, or it or the host failed. EngineTimeout: it did not start
            in time.
    """

    def __init__(
        self, serve: Serve, factory: Callable[[], BaseBridge], options: dict[str, Any], timeout: float = 60.0
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself finds out
            error = ConfigurationError("an engine's process was started by an import", cure=_GUARD)
            sys.stderr.write(f"{error}\n")
            raise SystemExit(_STARTED_BY_IMPORT)  # tells our parent, and passes every `except Exception` on the way
        instead = "run_in_thread(factory())"
        if serve is over_shm:
            instead = "run_shm_in_thread(factory())"
        sent = packed(factory, options, instead)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_child, args=(serve, sent, instead, theirs), name="ue_rl", daemon=True)
        with out_of_ctrl_c():  # it is for the trainer, which then closes us
            self.process.start()
        theirs.close()
        try:
            if not self._pipe.poll(timeout):
                raise EngineTimeout("the engine's process did not start", expected=f"an address within {timeout:g} s")
            what = "the bridge cannot be hosted"
            try:
                failure, self.url, cure = self._pipe.recv()
            except EOFError:
                self.process.join()
                failure = f"the process ended with exit code {self.process.exitcode}"
                cure = "see what it printed"
                if self.process.exitcode == _STARTED_BY_IMPORT:
                    what = f"an engine's process was started outside of {_MAIN}"
                    failure = "a second start, by an import"
                    cure = _GUARD
            if failure is not None:
                raise ConfigurationError(what, got=failure, cure=cure)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process; idempotent."""
        self._pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _child(serve: Serve, sent: bytes, instead: str, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then closes us
    stop = threading.Event()

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        stop.set()

    def say(failure: str | None, url: str, cure: str | None = None) -> None:
        # not send(): of its buffer Python 3.13 prints "Exception ignored" where the handle has gone
        pipe.send_bytes(pickle.dumps((failure, url, cure)))

    def ready(host: Host) -> None:
        say(None, host.url)
        threading.Thread(target=wait, daemon=True).start()

    try:
        factory, options = unpacked(sent)
    except Exception as error:  # noqa: BLE001 - of an import, or of somebody's __setstate__
        traceback.print_exc()
        with contextlib.suppress(OSError):
            failure = f"its factory cannot be made in another process: {type(error).__name__}: {error}"
            say(failure, "", f"put it into a module that can be imported, or host it in this process: {instead}")
        return
    try:
        with ends_in_order():
            serve(factory(), options, stop, ready)
    except (UeRlError, OSError, ImportError, ValueError, TypeError) as error:
        with contextlib.suppress(OSError):  # the handle has gone
            say(str(error), "")


def run_in_thread(
    bridge: BaseBridge, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> ThreadHandle[BridgeServer]:
    """Hosts `bridge` over TCP in a thread; options as BridgeServer."""
    return ThreadHandle(over_tcp, bridge, {"host": host, "port": port, **options})


def run_in_process(
    factory: Callable[[], BaseBridge], host: str = "127.0.0.1", port: int = 0, timeout: float = 60.0, **options: Any
) -> ProcessHandle:
    """Hosts `factory()` over TCP in a process of its own.

    Args:
        factory: a class, a function or functools.partial. With the package cloudpickle, which Gymnasium and
            Stable-Baselines3 bring, also a lambda, and what a notebook's cell defines.
        timeout: seconds to start. options: as BridgeServer.

    Raises:
        as ProcessHandle.
    """
    return ProcessHandle(over_tcp, factory, {"host": host, "port": port, **options}, timeout)


def say_where(server: BridgeServer) -> None:
    """Writes where a bridge listens to stderr."""
    print(f"listening on {server.url} (Ctrl-C stops)", file=sys.stderr, flush=True)


def serve(
    bridge: BaseBridge,
    host: str = "127.0.0.1",
    port: int = 7777,
    *,
    ready: Callable[[BridgeServer], None] = say_where,
    **options: Any,
) -> None:
    """Hosts `bridge` over TCP until Ctrl-C; options as BridgeServer. `ready` is called once it listens; by default
    it writes the address to stderr.

    Raises:
        SystemExit: SIGTERM or SIGHUP came, with exit code 143 or 129; everything is closed.
        OSError: the address cannot be listened on.
    """
    listens = False

    def begin(server: BridgeServer) -> None:
        nonlocal listens
        listens = True
        ready(server)

    with ends_in_order(), contextlib.suppress(KeyboardInterrupt):
        try:
            over_tcp(bridge, {"host": host, "port": port, **options}, None, begin)
        except OSError as error:
            number = error.errno
            if not number:
                number = 0
            cure = _CURES.get(number)
            if listens or cure is None:
                raise
            what = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}. {cure}"
            raise OSError(error.errno, what) from None  # the frames of asyncio tell the game's author nothing


def run_shm_in_thread(bridge: BaseBridge, **options: Any) -> ThreadHandle[ShmHost]:
    """Hosts `bridge` over shared memory in a thread; options as ShmHost."""
    return ThreadHandle(over_shm, bridge, options)


def run_shm_in_process(factory: Callable[[], BaseBridge], timeout: float = 60.0, **options: Any) -> ProcessHandle:
    """Hosts `factory()` over shared memory in a process of its own; otherwise as run_in_process. Options as ShmHost."""
    return ProcessHandle(over_shm, factory, options, timeout)


def serve_shm(bridge: BaseBridge, *, ready: Callable[[ShmHost], None] = lambda host: None, **options: Any) -> None:
    """Hosts `bridge` over shared memory until Ctrl-C; options as ShmHost. `ready` is called once it serves.

    Raises:
        SystemExit: SIGTERM or SIGHUP came, with exit code 143 or 129; the segment is deleted.
    """
    with ends_in_order(), contextlib.suppress(KeyboardInterrupt):
        over_shm(bridge, options, None, ready)


@contextmanager
def ends_in_order(for_good: bool = False) -> Iterator[None]:
    """Within it, the first of these signals raises SystemExit(128 + its number): 143 for SIGTERM, 129 for SIGHUP.

    What comes after the first is ignored: everything is being closed. A signal that is ignored already (nohup), or that
    the program handles itself, is left alone, and so is everything outside of the main thread.

    Args:
        for_good: the process ends with the block: after a first signal the others stay ignored behind it, too.
    """
    came = False
    taken = [
        number
        for number in (getattr(signal, name, None) for name in _NAMES)
        if number is not None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        for one in taken:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken if not (came and for_good) else ():
            signal.signal(number, signal.SIG_DFL)


def signal_of(code: object) -> str | None:
    """The name of the signal that `ends_in_order` gave this exit code; None: it gave none such."""
    known = {128 + int(getattr(signal, name)): name for name in _NAMES if hasattr(signal, name)}
    if isinstance(code, int):
        return known.get(code)
    return None
