"""Memory: what is kept, what is found, and what survives a restart."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ue_rl.plugins.arena.backends import LlamaBackend
from ue_rl.plugins.arena.memory import (
    Entry,
    HashingEmbedder,
    OnnxEmbedder,
    SlidingWindow,
    SummarisingMemory,
    VectorMemory,
)
from ue_rl.plugins.arena.memory.windows import extract
from ue_rl.system.errors import MissingPackage


def texts(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries]


def test_a_sliding_window_forgets_the_first() -> None:
    memory = SlidingWindow(3)
    for n in range(5):
        memory.store(Entry(f"fact {n}", n))
    assert texts(memory.retrieve()) == ["fact 4", "fact 3", "fact 2"]
    assert texts(memory.retrieve(limit=1)) == ["fact 4"]
    assert [row["tick"] for row in memory.dump()] == [2, 3, 4]
    assert memory.summarize() == "fact 4\nfact 3\nfact 2"
    memory.clear()
    assert memory.retrieve() == []


def test_a_sliding_window_forgets_the_least_important_and_so_does_its_file(tmp_path: Path) -> None:
    memory = SlidingWindow(2, "priority", tmp_path / "m.jsonl")
    for text, priority in (("gold", 9), ("dust", 1), ("silver", 5), ("sand", 2)):
        memory.store(Entry(text, priority=priority))
    assert texts(memory.retrieve()) == ["silver", "gold"]
    assert texts(SlidingWindow(2, "priority", tmp_path / "m.jsonl").retrieve()) == ["silver", "gold"]


def test_a_sliding_window_forgets_what_was_not_used() -> None:
    memory = SlidingWindow(2, "recency")
    memory.store("the red door")
    memory.store("the blue door")
    assert texts(memory.retrieve("red", 1)) == ["the red door"]
    memory.store("the green door")
    assert texts(memory.retrieve()) == ["the green door", "the red door"]


@pytest.mark.parametrize("make", [SlidingWindow, SummarisingMemory, VectorMemory])
def test_memory_survives_a_restart_and_a_cut_off_line(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "kept" / "memory.jsonl"
    first = make(5, path=path)
    for n in range(40):
        first.store(Entry(f"saw berry {n}", n))
    with path.open("a") as file:
        file.write('{"text": "cut o')
    again = make(5, path=path)
    assert again.dump() == first.dump()
    again.store("after the crash")
    assert make(5, path=path).retrieve()[0].text == "after the crash"
    assert len(path.read_text().splitlines()) < 20, "the file does not grow for ever"
    again.clear()
    assert make(5, path=path).dump() == []


def test_what_falls_out_is_summarised() -> None:
    asked = []

    def summarise(text: str) -> str:
        asked.append(text)
        return f"{len(text.splitlines())} lines"

    memory = SummarisingMemory(3, 4, summarise)
    for n in range(12):
        memory.store(f"fact {n}")
    assert asked[0] == "fact 0\nfact 1\nfact 2\nfact 3"
    assert asked[1].startswith("4 lines\nfact 4")
    assert memory.retrieve()[0].text == "fact 11"
    assert memory.retrieve()[-1].text == memory.summary
    assert memory.summarize().endswith("lines")


def test_without_a_model_the_lines_that_say_most_stay() -> None:
    text = "\n".join(["the key opens the gate", "hm", "the gate is north of the key", "hm", "ok then", "we met nobody"])
    assert extract(text, 53) == "the key opens the gate\nthe gate is north of the key"


class _One:
    """An embedder of a test: how often each of three letters comes."""

    size = 3

    def embed(self, given: Any) -> Any:
        return np.array([[text.count(letter) for letter in "abc"] for text in given], np.float32)


def test_any_embedder_and_the_ring() -> None:
    memory = VectorMemory(3, _One())
    for text in ("aaa", "b", "bb", "ccc", "c"):
        memory.store(text)
    assert texts(memory.retrieve()) == ["c", "ccc", "bb"]
    assert texts(memory.retrieve("c", 2)) == ["ccc", "c"]
    assert texts(memory.retrieve("b", 1)) == ["bb"]
    assert memory.retrieve("b", 0) == []
    assert len(memory.retrieve("b")) == 3


def test_the_hashing_embedder_is_the_same_everywhere() -> None:
    (row,) = HashingEmbedder(8).embed(["the north gate"])
    assert np.linalg.norm(row) == pytest.approx(1)
    np.testing.assert_array_equal(HashingEmbedder(8).embed(["", "north gate"])[1], row)
    np.testing.assert_allclose(row[:3], HashingEmbedder(8).embed(["North, gate!"])[0][:3])


COLOURS = ("red", "blue", "green", "black", "white", "golden", "silver", "purple", "brown", "grey")
THINGS = (("key", "opens the cellar"), ("lever", "starts the mill"), ("rope", "hangs by the well"),
          ("lamp", "shows the tunnel"), ("stone", "hides a letter"))  # fmt: skip
PLANTED = [(f"the {c} {t} {does}", f"where do I use the {c} {t}?") for c in COLOURS for t, does in THINGS]


def remembered(index: str, count: int = 10_000) -> tuple[VectorMemory, int]:
    """So many observations among which 50 facts stand; of how many the right one is in the first three."""
    rng = random.Random(0)
    words = ("berry", "fire", "walked", "north", "east", "saw", "health", "took", "stone", "key", "near", "door")
    memory = VectorMemory(count, index=index)
    places = set(rng.sample(range(count), len(PLANTED)))
    facts = iter(PLANTED)
    for n in range(count):
        noise = f"tick {n}: {' '.join(rng.choices(words, k=5))} at ({rng.randint(-20, 20)}, {rng.randint(-20, 20)})"
        memory.store(Entry(next(facts)[0] if n in places else noise, n))
    found = sum(fact in texts(memory.retrieve(query, 3)) for fact, query in PLANTED)
    return memory, found


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("index", ["numpy", "faiss"])
def test_planted_facts_are_found_among_thousands(index: str, count: int) -> None:
    if index == "faiss":
        pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    memory, found = remembered(index, count)
    assert len(memory) == count
    assert found >= 45


@pytest.mark.parametrize("make", [SlidingWindow, SummarisingMemory, VectorMemory])
def test_a_damaged_file_costs_its_damaged_lines(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    wrong = [
        b'{"text": 5}', b'{"text": "a", "tick": "x"}', b'{"tick": 1}', b"[" * 100_000, b"[1]", b"\x00\xff", b'{"te',
    ]  # fmt: skip
    path.write_bytes(b"\n".join([b'{"text": "the first"}', *wrong, b'{"text": "the last", "priority": 1}']))
    memory = make(20, path=path)
    memory.store("another")
    assert [row["text"] for row in memory.dump()] == ["the first", "the last", "another"]
    assert [row["text"] for row in make(20, path=path).dump()] == ["the first", "the last", "another"]


@pytest.mark.parametrize("make", [SlidingWindow, SummarisingMemory, VectorMemory])
def test_restarts_do_not_make_the_file_grow(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    for n in range(40):
        memory = make(5, path=path)
        memory.store(Entry(f"start {n}", n))
    assert len(path.read_text().splitlines()) < 20
    assert memory.retrieve()[0].text == "start 39"
    memory.store("x" * 1_000_000 + "\ud800")
    assert path.stat().st_size < 10_000


def test_where_the_model_is_down_the_lines_that_say_most_stay() -> None:
    def down(_: str) -> str:
        raise ConnectionError("nobody answers")

    memory = SummarisingMemory(3, 4, down)
    for n in range(12):
        memory.store(f"fact {n}")
    assert memory.summary.startswith("fact 0\nfact 1")
    assert memory.retrieve()[0].text == "fact 11"


def test_an_onnx_model_embeds(tmp_path: Path) -> None:
    """Its table has a row for each word; what is padded counts for nothing."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import TensorProto, helper

    from tests.support.onnx_files import floats, graph

    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "tokens"])
    node = helper.make_node("Gather", ["table", "input_ids"], ["rows"])
    table = np.array([[9, 9], [3, 0], [0, 4]], np.float32)
    (tmp_path / "model.onnx").write_bytes(graph([node], [ids], [floats("rows", "n", "tokens", 2)], [("table", table)]))
    words = {"north": 1, "south": 2}
    embedder = OnnxEmbedder(tmp_path / "model.onnx", lambda text: [words[word] for word in text.split()])
    found = embedder.embed(["north", "north south", "south south south"])
    np.testing.assert_allclose(found, [[1, 0], [0.6, 0.8], [0, 1]], rtol=1e-6)
    memory = VectorMemory(500, embedder)
    for n in range(300):  # more than are embedded at once
        memory.store("north" if n == 7 else "south")
    assert texts(memory.retrieve("north", 1)) == ["north"]


@pytest.mark.parametrize(
    ("package", "command", "make"),
    [
        ("faiss", "pip install faiss-cpu", lambda: VectorMemory(index="faiss")),
        ("tokenizers", "pip install tokenizers", lambda: OnnxEmbedder("model.onnx", "tokenizer.json")),
        ("llama_cpp", "pip install llama-cpp-python", lambda: LlamaBackend("model.gguf")),
    ],
)
def test_a_package_that_no_extra_has_is_named(
    package: str, command: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=f"needs {package}.*") as error:
        make()
    assert error.value.cure == command
