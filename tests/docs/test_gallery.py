"""docs/gallery.md is what benchmarks/gallery.py makes of its results, and every sample reached what it must."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "gallery"


@pytest.fixture(scope="module")
def gallery():
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks import gallery
    finally:
        sys.path.remove(str(ROOT))
    return gallery


def test_the_page_is_that_of_the_results(gallery) -> None:
    assert (ROOT / "docs" / "gallery.md").read_text("utf-8") == gallery.page(gallery.read_results())


def test_every_link_of_the_table_leads_to_a_place_of_its_own(gallery) -> None:
    anchors = [gallery.anchor(sample.title) for sample in gallery.SAMPLES.values()]
    assert len(set(anchors)) == len(anchors)


def test_every_sample_was_run_and_has_learnt(gallery) -> None:
    results = gallery.read_results()
    assert set(results) == set(gallery.SAMPLES)
    for name, sample in gallery.SAMPLES.items():
        assert results[name]["return"] >= sample.target, name


def test_pictures_are_there_and_small(gallery) -> None:
    shown = set(re.findall(r"\(gallery/([\w.]+)\)", (ROOT / "docs" / "gallery.md").read_text("utf-8")))
    shown |= set(re.findall(r"\(docs/gallery/([\w.]+)\)", (ROOT / "README.md").read_text("utf-8")))
    files = {file.name: file.stat().st_size for file in FOLDER.iterdir() if file.suffix in (".png", ".gif")}
    assert set(files) == shown
    assert max(files.values()) < 300_000
    assert sum(files.values()) < 4_000_000
    for name in gallery.SAMPLES:
        with Image.open(FOLDER / f"{name}.gif") as film:
            assert film.n_frames > 8
