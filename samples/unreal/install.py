"""Puts the plugin UeRlBridge, with the C++ headers that it needs, into an Unreal project.

python samples/unreal/install.py PROJECT          PROJECT is the folder of the .uproject

An older copy's Source folder is deleted first: keep what you write in a module of your own.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1]


def install(project: Path) -> Path:
    """The plugin's folder in the project."""
    if not project.is_dir():
        sys.exit(f"{project} is no folder: name the folder of your project")
    if not any(project.glob("*.uproject")):
        sys.exit(f"{project} holds no .uproject: name the folder of your project")
    plugin = project / "Plugins" / "UeRlBridge"
    if plugin.parent.exists() and not plugin.parent.is_dir():
        sys.exit(f"{plugin.parent} is a file, where the plugins' folder has to be: move it away")
    shutil.rmtree(plugin / "Source", ignore_errors=True)
    shutil.copytree(SAMPLES / "unreal" / "UeRlBridge", plugin, dirs_exist_ok=True)
    third_party = plugin / "Source" / "ThirdParty" / "ue_rl"
    third_party.mkdir(parents=True)
    for header in ("ue_rl_bridge.hpp", "ue_rl_sensors.hpp"):
        shutil.copy(SAMPLES / "cpp" / header, third_party)
    return plugin


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(f"installed into {install(Path(sys.argv[1]))}: generate the project files again and build")
