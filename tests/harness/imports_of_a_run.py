"""What of the library a training run imports sooner or later; `WarmCli` imports this file, which stands beside it."""

from __future__ import annotations

import ue_rl.cli.train
import ue_rl.inference.export.sb3
import ue_rl.training.engine
import ue_rl.training.sb3  # noqa: F401
