"""The add-on for Godot 4 is made from the one for Godot 3. Here its names are looked at; .ci/run has it parsed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from samples.godot import to_godot4

OF_GODOT_3 = r"\bPool\w+Array|\bTCP_Server|\.empty\(|OS\.get_ticks|to_ascii\(|percent_(en|de)code|iterations_per_second"
OF_GODOT_3 += r"|File\.new|ord_at|extends Reference|\bTransform\(|BoxShape\b|extents|\.intersect_ray\(from"


def test_no_name_of_godot_3_is_left(tmp_path: Path) -> None:
    subprocess.run([sys.executable, to_godot4.__file__, tmp_path], check=True, capture_output=True)
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "addons" / "ue_rl").iterdir()}
    assert set(written) == {path.name for path in to_godot4.ADDON.iterdir()}
    assert {name: re.findall(OF_GODOT_3, text) for name, text in written.items() if re.search(OF_GODOT_3, text)} == {}
    assert '",".join(features)' in written["ue_rl_bridge.gd"]
    assert "PackedFloat32Array([whole / POWERS[places]])[0] != size" in written["ue_rl_text.gd"]


def test_a_rule_for_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="matches"):
        to_godot4.converted({"a.gd": "extends Node\n"})
