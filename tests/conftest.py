"""What every test may rely on."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.ahead import Ahead
from tests.support.slack import slack as slack_of_this_machine
from tests.support.undrawn import UNDRAWN, take_curves_away

if TYPE_CHECKING:
    from tests.harness.warm_cli import WarmCli

TESTS = Path(__file__).resolve().parent
_UNDRAWN_HERE = pytest.MonkeyPatch()  # takes the curves from the runs of this process
WARM_ROOT = "UE_RL_TESTS_WARM_ROOT"  # names the socket of the WarmRoot of these workers
# Before torch is imported: with as many workers as cores, torch's threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What tests start finds tests.harness as they do, wherever it runs.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS.parent), os.environ.get("PYTHONPATH")]))
# As in many containers: each of some hundred processes would compile the library anew, and each worker the tests. Not
# into a folder of its own (PYTHONPYCACHEPREFIX): Python would look there for torch's bytecode, too, and compile it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["XDG_CONFIG_HOME"] = os.path.join(tempfile.gettempdir(), "ue_rl-tests-config")  # nobody's own key
# else each learn() leaves a folder in /tmp
os.environ["SB3_LOGDIR"] = os.path.join(tempfile.gettempdir(), "ue_rl-tests-sb3")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # of tests that import onnxruntime themselves
os.environ.setdefault("RAY_ADDRESS", "local")  # else ray.init() would join the cluster of another worker's test
os.environ.setdefault("RAY_worker_niceness", "0")  # not 15, which starves Ray's workers beside the other tests
os.environ[UNDRAWN] = "1"
os.environ["MONO_DISABLE_SHARED_AREA"] = "1"  # a mono that is killed would leave its counters in /dev/shm


def pytest_configure(config: pytest.Config) -> None:
    """Signals reach the tests' processes even where the suite was started in the background or by nohup."""
    _import_as_users_do(config)
    _share_imports(config)  # which imports while the library is compiled
    _compile(config)
    _begin_elsewhere(config)
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _import_as_users_do(config: pytest.Config) -> None:
    """The library's own asserts stay as they are.

    pytest rewrites those of an editable installation that has a plug-in for pytest, as ours has: it would parse each
    module once more than the processes do that tests start.
    """
    hook = config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("ue_rl")  # no option leaves out one package


def _has_workers(config: pytest.Config) -> bool:
    """Is this the process that starts them?"""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def _compile(config: pytest.Config) -> None:
    """The library and what helps the tests, once: else all workers do it at the same time, each for itself."""
    if _has_workers(config):
        # What does not compile is said by who imports it, and a folder that may not be written to is no fault.
        words = ["-m", "compileall", "-qq", "-j", "0", "ue_rl", "samples", "tests/harness", "tests/support"]
        subprocess.run([sys.executable, *words], cwd=TESTS.parent, check=False)


def _share_imports(config: pytest.Config) -> None:
    """Several workers are forked from a process that has imported the libraries, and so is the `ue-rl` of each."""
    if not _has_workers(config) or not hasattr(os, "fork"):
        return
    from tests.harness.warm_cli import LIBRARIES, WarmRoot

    root = WarmRoot(_imports_of_a_run(), [each for each in LIBRARIES if importlib.util.find_spec(each.split(".")[0])])
    os.environ[WARM_ROOT] = root.path
    config.add_cleanup(root.close)
    if sys.platform == "darwin":
        return  # where a process may not fork once it has loaded some of the system's frameworks
    # `popen` is one that imports everything itself. Whoever asks for others by --tx gets those.
    config.option.tx = [f"popen//python={root.python}" if each == "popen" else each for each in config.option.tx]


def _imports_of_a_run() -> Sequence[str]:
    from tests.harness.warm_cli import TRAINING

    # Where a plug-in is tested with its own extra alone, nothing trains.
    if importlib.util.find_spec("stable_baselines3"):
        return TRAINING
    return ()


def _begin_elsewhere(config: pytest.Config) -> None:
    """Each worker collects the folders of tests/ from another one on: what one has compiled, the others only read.

    All have about as many bytes until they come to where the next one began: who came there early would go on beside
    it, and compile the same files at the same time.
    """
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if worker and [Path(each).resolve() for each in config.args] == [TESTS]:
        sizes: dict[Path, int] = defaultdict(int)
        for file in sorted(TESTS.rglob("test_*.py")):
            # Not the file itself: it would be collected where its folder says that it is not.
            sizes[TESTS / file.relative_to(TESTS).parts[0]] += file.stat().st_size
        folders = list(sizes)
        begins = list(itertools.accumulate(sizes.values(), initial=0))
        share = int(worker["workerid"].removeprefix("gw")) / worker["workercount"]
        first = min(range(len(folders)), key=lambda at: abs(begins[at] - share * begins[-1]))
        config.args = [str(folder) for folder in folders[first:] + folders[:first]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Eight thousand tests and what they import live to the end: the garbage collector need not look at them.

    It would take a third of the collection's time, and a tenth of that of each test that imports torch.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)  # at Python's own 700 new objects, collecting takes 2 s of each worker
        gc.enable()
        _join_the_loggers_of_torch()
        take_curves_away(_UNDRAWN_HERE)


def _join_the_loggers_of_torch() -> None:
    """They hand on what they log, as others do.

    Else pytest would give its handlers to each of them and take them away again, in all parts of each test.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.split(".")[0] == "torch":
            logger.propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, so that no worker is left alone with one at the end; the same order in each worker.

    Most of them wait, and one worker begins with them all: meanwhile the others keep the cores busy.
    """
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path))


@pytest.fixture(scope="session")
def load_script() -> Callable[[Path], ModuleType]:
    """Loads a script that is in no package, such as a benchmark, as a module of its own name."""

    def load(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # dataclasses and pickle look there
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's runs draw curves.png, as users' runs do."""
    monkeypatch.delenv(UNDRAWN)
    _UNDRAWN_HERE.undo()
    yield
    take_curves_away(_UNDRAWN_HERE)


@pytest.fixture(scope="session")
def warm_cli() -> Iterator[WarmCli]:
    """`ue-rl` as processes forked from one that has imported torch: that import is 2 to 5 s of each test without it."""
    if not hasattr(os, "fork"):
        pytest.skip("WarmCli forks")
    from tests.harness.warm_cli import WarmCli

    with WarmCli(modules=_imports_of_a_run(), root=os.environ.get(WARM_ROOT)) as warm:
        yield warm


@pytest.fixture(scope="session")
def _ahead(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    jobs = Ahead(request.session.items)
    yield jobs
    jobs.close()


@pytest.fixture
def result(_ahead: Ahead, request: pytest.FixtureRequest) -> Any:
    """What the job of the test's marker `ahead` returned."""
    return _ahead.result(request.node)


@pytest.fixture
def slack() -> float:
    """The unit of every assert on time."""
    return slack_of_this_machine()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch computes with one thread, as whatever is to be the same to the bit must."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def msgpack_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of `msgpack` as where Ray was imported: replaced by msgpack-numpy's, which load pickles."""
    import msgpack

    def loads_pickles(*_: object, **__: object) -> None:
        raise AssertionError("a function of msgpack that Ray has replaced by one that loads pickles")

    for name in ("Packer", "Unpacker", "pack", "packb", "unpack", "unpackb", "dump", "dumps", "load", "loads"):
        monkeypatch.setattr(msgpack, name, loads_pickles)
