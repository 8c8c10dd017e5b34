"""What a stranger has made and a plug-in reads runs nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.warm_cli import WarmCli

HARMLESS = {"config of RLlib", "message of RLlib"}  # read as data, whatever they name


def test_no_file_of_a_stranger_runs_anything(tmp_path: Path, warm_cli: WarmCli) -> None:
    done = warm_cli.run_script(Path(__file__).with_name("hostile.py"), str(tmp_path / "files"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 4
    for kind, said in found.items():
        assert (said["tried"], said["pwned"]) == ([], False), kind
        assert (said["gave"] == "opened") <= (kind in HARMLESS), kind
