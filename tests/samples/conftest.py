"""Programs, engines and models of the samples that more than one file of tests uses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.samples import cpp_engine, unity_engine
from tests.samples.unity_engine import NUM_ENVS, started
from tests.support.waiting import eventually

# -- C++


@pytest.fixture(scope="session")
def built() -> dict[str, Path]:
    """The demo and the program of the tests' games, by their names in PROGRAMS."""
    with ThreadPoolExecutor(2) as pool:
        names = ("lab-asan", "reach")
        return dict(zip(names, pool.map(cpp_engine.made, names), strict=True))


# -- C#: two programs, and the ports of engines


@pytest.fixture(scope="session")
def engine_exe() -> Path:
    """The demo."""
    return unity_engine.compiled("engine.exe", *unity_engine.CONSOLE)


@pytest.fixture(scope="session")
def probe() -> Path:
    """tests/samples/unity/Probe.cs, with its games."""
    return unity_engine.compiled("probe.exe", *unity_engine.PROBE)


@pytest.fixture(scope="module")
def reach(engine_exe: Path) -> Iterator[int]:
    german = {"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}
    with started([engine_exe, "--port", "0", "--num-envs", str(NUM_ENVS)], **german) as port:
        yield port


@pytest.fixture(scope="module")
def sink(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "sink", "0", str(NUM_ENVS)], PROBE_CULTURE="comma") as port:
        yield port


@pytest.fixture(scope="module")
def plain(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "plain", "0", str(NUM_ENVS)]) as port:
        yield port


@pytest.fixture(scope="module")
def agents(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "agents", "0", "2"]) as port:
        yield port


@pytest.fixture
def no_segment_stays() -> Iterator[None]:
    """An engine keeps none behind its session, whoever killed whom."""
    before = unity_engine.segments()
    yield
    eventually(lambda: unity_engine.segments() <= before)


# -- models for samples/deploy; torch is imported where they are wanted


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """(kind of actions, is it normalised?) -> an ONNX file."""
    from tests.samples.deploy_demos import ACTIONS, MODELS, Game, exported

    folder = tmp_path_factory.mktemp("models")
    return {
        (kind, normalised): exported(folder / f"{kind}-{normalised}.onnx", Game(ACTIONS[kind]), normalised=normalised)
        for kind, normalised in MODELS
    }


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gymnasium import spaces
    from sb3_contrib import RecurrentPPO

    from tests.samples.deploy_demos import Game, exported

    path = tmp_path_factory.mktemp("recurrent") / "model.onnx"
    return exported(path, Game(spaces.Box(-1, 1, (2,))), algorithm=RecurrentPPO)
