"""A built wheel with the extra `engine` alone: `ue-rl serve`, `check` and `inspect` on a bridge. Not a pytest file.

python tests/wheel_engine.py           exits with a traceback where something is wrong
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SAMPLES = Path(__file__).resolve().parent.parent / "samples"


def main() -> None:
    """Serves samples/reach.py, and says what the commands said of it last."""
    command = [sys.executable, "-um", "ue_rl"]
    serve = [*command, "serve", "--bridge", "reach:ReachBridge", "--num-envs", "2", "--port", "0"]
    with subprocess.Popen(serve, cwd=_SAMPLES, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as engine:
        assert engine.stdout is not None
        try:
            url = engine.stdout.readline().partition(" on ")[2].split()[0].rstrip(",")
            for words in (["check", url], ["inspect", url]):
                done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
                print(words[0], done.stdout.strip().splitlines()[-1])
        finally:
            engine.terminate()


if __name__ == "__main__":
    main()
