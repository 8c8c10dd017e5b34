"""Puts the plugin UeRlBridge, with the C++ headers that it needs, into an Unreal project.

python samples/unreal/install.py PROJECT          PROJECT is the folder of the .uproject; an older copy is replaced
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1]


def install(project: Path) -> Path:
    """The plugin's folder in the project."""
    if not any(project.glob("*.uproject")):
        sys.exit(f"{project} holds no .uproject: name the folder of your project")
    plugin = project / "Plugins" / "UeRlBridge"
    shutil.rmtree(plugin / "Source", ignore_errors=True)
    shutil.copytree(SAMPLES / "unreal" / "UeRlBridge", plugin, dirs_exist_ok=True)
    third_party = plugin / "Source" / "ThirdParty" / "ue_rl"
    third_party.mkdir(parents=True)
    for header in ("ue_rl_bridge.hpp", "ue_rl_sensors.hpp"):
        shutil.copy(SAMPLES / "cpp" / header, third_party)
    return plugin


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"installed into {install(Path(sys.argv[1]))}: generate the project files again and build")
