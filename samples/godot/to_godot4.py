"""Writes the add-on addons/ue_rl for Godot 4, from the one for Godot 3 that stands here.

python samples/godot/to_godot4.py PROJECT         into PROJECT/addons/ue_rl

Written from Godot 4's documentation, and its result is read by a parser of GDScript 2 (gdparse of gdtoolkit). Godot 4
itself has never run it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ADDON = Path(__file__).resolve().parent / "addons" / "ue_rl"
# (what, into what), one after the other. Patterns are regular expressions; a rule that changes nothing is an error.
RULES = (
    (r"^tool$", "@tool"),
    (r"^export var ", "@export var "),
    (r"^export\(PoolStringArray\) var (\w+) = ", r"@export var \1: PackedStringArray = "),
    (r"^(\t?)extends Reference$", r"\1extends RefCounted"),
    (r"\bPool(String|Byte)Array", r"Packed\1Array"),
    (r"\b(\w+)\.join\((\"[^\"]*\")\)", r"\2.join(\1)"),
    (r"\.empty\(\)", ".is_empty()"),
    (r"\.to_ascii\(\)", ".to_ascii_buffer()"),
    (r"\.subarray\(result\[1\], data\.size\(\) - 1\)", ".slice(result[1])"),
    (r"\.percent_encode\(\)", ".uri_encode()"),
    (r"\.percent_decode\(\)", '.replace("+", "%2B").uri_decode()'),  # uri_decode makes a plus a blank
    (r"\.is_valid_integer\(\)", ".is_valid_int()"),
    (r"\.find_last\(", ".rfind("),
    (r"\bTYPE_REAL\b", "TYPE_FLOAT"),
    (r"\bTYPE_REAL_ARRAY\b", "TYPE_PACKED_FLOAT32_ARRAY"),
    (r"\bTYPE_INT_ARRAY\b", "TYPE_PACKED_INT32_ARRAY, TYPE_PACKED_INT64_ARRAY, TYPE_PACKED_FLOAT64_ARRAY"),
    (r"\bTYPE_RAW_ARRAY\b", "TYPE_PACKED_BYTE_ARRAY"),
    (r"\bTYPE_(STRING|VECTOR2|VECTOR3)_ARRAY\b", r"TYPE_PACKED_\1_ARRAY"),
    (
        r"var result = JSON\.parse\(json\)\n\treturn .*",
        "var parser = JSON.new()\n"
        "\treturn _with_numbers(parser.data) if parser.parse(json) == OK and parser.data is Dictionary else null",
    ),
    (r"\bstepify\(", "snapped("),
    (r"\bord\((\w+)\)", r"\1.unicode_at(0)"),
    (r"\.ord_at\(", ".unicode_at("),
    (
        r"var file = File\.new\(\)\n.*\n\t\t\t_token = .*",
        "_token = FileAccess.get_file_as_string(secret).strip_edges().to_utf8_buffer()",
    ),
    (r"\bTCP_Server\b", "TCPServer"),
    (r"^\treturn peer\.get_status\(\)", "\tpeer.poll()\n\treturn peer.get_status()"),
    (r"\bOS\.get_ticks_usec\b", "Time.get_ticks_usec"),
    (r"\biterations_per_second\b", "physics_ticks_per_second"),
    (r"\bpause_mode = PAUSE_MODE_PROCESS", "process_mode = Node.PROCESS_MODE_ALWAYS"),
    (r"\bprocess_priority\b", "process_physics_priority"),
    (r"\bget_world\(\)", "get_world_3d()"),
    (r"\bTransform\(", "Transform3D("),
    (r"\bBoxShape\b", "BoxShape3D"),
    (r"\bbox\.extents = Vector3\(0\.5, 0\.5, 0\.5\) \*", "box.size = Vector3.ONE *"),
    (r"\bPhysicsShapeQueryParameters\b", "PhysicsShapeQueryParameters3D"),
    (
        r"\.intersect_ray\((.*), _skip, _mask\)",
        r".intersect_ray(PhysicsRayQueryParameters3D.create(\1, _mask, _skip))",
    ),
    (r"\b_kept\.slice\(numbers\.size\(\), size\(\) - 1\)", "_kept.slice(numbers.size())"),
    # A build with double precision has doubles in a Vector2.
    (r"\bVector2\(((?:[^()]|\([^()]*\))+), 0\.0\)\.x", r"PackedFloat32Array([\1])[0]"),
)


def converted(files: dict[str, str]) -> dict[str, str]:
    """File name to GDScript 2 of file name to GDScript 1."""
    for pattern, into in RULES:
        changed = {name: re.sub(pattern, into, text, flags=re.M) for name, text in files.items()}
        if changed == files:
            raise ValueError(f"nothing in {ADDON} matches {pattern}")
        files = changed
    return files


def main(project: Path) -> None:
    """Writes the files, and says where."""
    folder = project / "addons" / "ue_rl"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in converted({path.name: path.read_text("utf-8") for path in ADDON.glob("*.gd")}).items():
        (folder / name).write_text(text, "utf-8")
    (folder / "plugin.cfg").write_bytes((ADDON / "plugin.cfg").read_bytes())
    print(f"{folder}: not run in Godot 4 yet. Tell us what you meet")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
