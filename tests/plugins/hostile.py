"""Opens what plug-ins read and a stranger has made, under an audit hook; prints what each gave, and what was tried.

python tests/plugins/hostile.py FOLDER
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.strangers import Calls, tried_with
from ue_rl.plugins.arena.replaylog import ReplayLog
from ue_rl.plugins.rllib.rllink.msgpack_dialect import unpack
from ue_rl.plugins.rllib.rllink.pickles import read_pickle
from ue_rl.plugins.sessions.realtime.replay import Replay
from ue_rl.system.messagepack import packb

FOLDER = Path(sys.argv[1])
FOLDER.mkdir(exist_ok=True)
evil = pickle.dumps(Calls(os.system, f"touch {FOLDER / 'pwned'}"))
(FOLDER / "packed").write_bytes(packb({"format": "x", "header": evil}))

KINDS: dict[str, Callable[[], Any]] = {
    "replay of sessions": lambda: Replay.load(FOLDER / "packed"),
    "log of an arena": lambda: ReplayLog(FOLDER / "packed"),
    "message of RLlib": lambda: unpack(packb({b"__ndarray__": True, b"kind": b"O", b"data": evil})),
    "config of RLlib": lambda: read_pickle(evil).made_by.name + 1,  # it is a name, and nothing was called
}

print(json.dumps(tried_with(KINDS, FOLDER, trust=False)))
