"""What each place of the tree is for, and what it may import: the rule table of docs/architecture.md.

From the top floor to the ground: a place sees only places further down, or others of its own room. Read by
tests/test_architecture.py, which holds every file to it, and by docs/architecture_drawing.py, which draws it.
"""

from __future__ import annotations

from typing import NamedTuple

ROOMS = ("connections/", "bridges/", "inference/")
GROUND = {f"ue_rl/{name}" for name in ("transport.py", "buffers.py", "spec.py", "spaces/", "system/", "errors.py")}


class Place(NamedTuple):
    """A folder, or a file of ue_rl/ itself. A file belongs to the longest name that its path begins with."""

    name: str
    what: str
    sees: str  # the names of other places, those of ue_rl/ without "ue_rl/"; "*": all

    def may_see(self) -> set[str]:
        """The full names of the places that its files may import, itself among them."""
        if self.sees == "*":
            return {row.name for row in ROWS}
        others = {name if name.startswith(ROOMS) else f"ue_rl/{name}" for name in self.sees.split()}
        return others | {self.name} | (set() if self.name in GROUND else GROUND)


# fmt: off
ROWS = (
    Place("ue_rl/__main__.py", "python -m ue_rl", "cli/"),
    Place("ue_rl/cli/", "the commands", "*"),
    Place("ue_rl/plugins/rllib/", "RLlib: env runners, learner, export",
          "training/ saving/ agents/ engines/ inference/ inference/export/ rllink/ envs/ security/"),
    Place("ue_rl/plugins/arena/", "agents that reason, their scenes and memory",
          "bridges/ bridges/serving/ inference/ security/ tools/"),
    Place("ue_rl/training/tuning/", "a search for hyperparameters", "training/ saving/ launching/ security/"),
    Place("ue_rl/training/runs/", "runs listed, compared, watched", "training/ saving/ engines/"),
    Place("ue_rl/training/", "a training run",
          "saving/ agents/ connecting.py demonstrations/ launching/ metrics/ recording/ engines/ inference/ envs/ "
          "calls/ wire/ security/"),
    Place("ue_rl/training/demonstrations/", "learning from what others have played", "saving/ envs/ security/"),
    Place("ue_rl/devtools/doctor/", "`ue-rl doctor`: what is wrong with this machine", "connecting.py"),
    Place("ue_rl/devtools/metrics/", "numbers for who operates, for Prometheus", "bridges/ security/"),
    Place("ue_rl/devtools/recording/", "traces: written, shown, played again", "bridges/ wire/"),
    Place("ue_rl/devtools/check/", "`ue-rl check`: what an engine does wrong",
          "compliance/checks/ connecting.py security/ shm/ wire/"),
    Place("ue_rl/devtools/check/checks/", "one check after another", "compliance/ wire/"),
    Place("ue_rl/devtools/testing/", "tests of engines and trainers", "testing/engines/ bridges/ carriers/ wire/"),
    Place("ue_rl/devtools/testing/engines/", "engines for tests, also broken ones", "testing/ bridges/ bridges/shm/"),
    Place("ue_rl/__init__.py", "import ue_rl", "envs/"),
    Place("ue_rl/envs/connect.py", "connect(url), launch(command)",
          "launching/ engines/ envs/ carriers/"),
    Place("ue_rl/training/saving/", "checkpoints, exact resume, AutoSave", "envs/ security/"),
    Place("ue_rl/envs/agents/", "groups of agents, self-play, PettingZoo", "envs/ calls/ carriers/ security/"),
    Place("ue_rl/envs/", "VecEnv, Gymnasium envs", "calls/"),
    Place("connections/launching/", "engine processes, their keeper, ports", "engines/ carriers/ shm/"),
    Place("connections/engines/", "several engines as one, losses, restarts", "carriers/"),
    Place("ue_rl/plugins/rllib/rllink/", "RLlib's protocol for simulators", ""),
    Place("connections/", "the trainer's side", "connections/tcp/ connections/shm/ carriers/ security/"),
    Place("ue_rl/plugins/sessions/grpc/client/", "sessions over gRPC", "carriers/ security/ sessions/ wire/"),
    Place("connections/shm/", "shared memory", "connections/tcp/ carriers/ security/ shm/ commands/ wire/"),
    Place("connections/tcp/", "text over sockets", "carriers/ security/ wire/"),
    Place("bridges/", "the engine's side", "bridges/tcp/ bridges/shm/ commands/ wire/"),
    Place("ue_rl/plugins/sessions/grpc/", "sessions over gRPC", "bridges/serving/ ue_rl/plugins/sessions/realtime/ security/ sessions/"),
    Place("ue_rl/plugins/sessions/mcp/", "sessions over MCP", "bridges/serving/ ue_rl/plugins/sessions/realtime/ security/"),
    Place("ue_rl/plugins/sessions/openenv/", "sessions over OpenEnv", "bridges/serving/ ue_rl/plugins/sessions/realtime/ security/"),
    Place("bridges/serving/", "what carriers of sessions share", "ue_rl/plugins/sessions/realtime/ security/ tools/"),
    Place("ue_rl/plugins/sessions/realtime/", "sessions of games that do not wait", "bridges/ bridges/tcp/ bridges/shm/ tools/ wire/"),
    Place("bridges/shm/", "shared memory", "bridges/ shm/ commands/ wire/"),
    Place("bridges/tcp/", "text over sockets", "bridges/ security/ wire/"),
    Place("inference/", "a trained policy in the trainer's place", "wire/"),
    Place("inference/export/", "makes ONNX files", "inference/ inference/runtime/ security/"),
    Place("inference/server/", "answers games that have no runtime", "inference/ inference/runtime/ security/ wire/"),
    Place("inference/runtime/", "runs ONNX files", "inference/"),
    Place("ue_rl/protocol/access/", "files and peers that may be strangers", "wire/"),
    Place("connections/base/", "the life of a connection", "wire/"),
    Place("ue_rl/protocol/calls/", "what is asked between two steps; parameters", "wire/"),
    Place("ue_rl/protocol/commands/", "messages of shared memory", ""),
    Place("ue_rl/plugins/sessions/", "messages of sessions over gRPC", ""),
    Place("bridges/tools/", "what minds that read may call by name", ""),
    Place("ue_rl/protocol/memory/", "memory: header, segment, ring, bell", ""),
    Place("ue_rl/protocol/text/", "text: handshake, codec, kernels, whose turn it is", ""),
    Place("ue_rl/protocol/transport.py", "what an env needs of a connection", "buffers.py spec.py"),
    Place("ue_rl/protocol/buffers.py", "the arrays of a step", "spec.py"),
    Place("ue_rl/protocol/spec.py", "what a handshake agreed on", "spaces/ errors.py"),
    Place("ue_rl/protocol/spaces/", "what the numbers of a row mean", "errors.py"),
    Place("ue_rl/system/", "processes, files, lazy imports", "errors.py"),
    Place("ue_rl/system/errors.py", "every error, and who is at fault", ""),
)
# fmt: on


def place_of(path: str) -> Place:
    """The row that a file of the repository belongs to.

    Raises:
        LookupError: to none: the table says nothing of it.
    """
    rows = [row for row in ROWS if path == row.name or (row.name.endswith("/") and path.startswith(row.name))]
    if not rows:
        raise LookupError(f"{path} has no row in tests/places.py")
    return max(rows, key=lambda row: len(row.name))
