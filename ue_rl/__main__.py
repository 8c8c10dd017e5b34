"""`ue-rl`, also as `python -m ue_rl`."""

from __future__ import annotations

import sys
from typing import Any


def main() -> Any:
    """Runs the command line and exits; says what to install where only the library is there."""
    try:
        from ue_rl.cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(
            "The command line needs more than the library: pip install 'ue_rl[engine]' to check and serve engines, "
            "'ue_rl[train]' to train in them, 'ue_rl[engine,inference]' for a policy server"
        )
    except KeyboardInterrupt:  # Ctrl-C while the command line is imported
        sys.exit(130)
    return run()


if __name__ == "__main__":
    main()
