"""What a row of the table of options.py says of an option, and the words that it may use for it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

from ue_rl.training.kinds import OptionKind

# What --resume does with an option, beside refusing another value with a cure.
APPLIED = "applied, and said"
UNSAID = "where the run is, or compared part by part"
NEW_RUN = "leave it out, or begin a new run with the weights of this one: --init-from {run}"

# With RLlib, beside what to do instead of an option that it does not have.
BOTH = ""
ONLY = "Stable-Baselines3 does not have it"
LEAVE = "leave it out, or train with --backend sb3"

# The headings of `ue-rl train --help`, in their order.
GROUPS = (
    EVERYDAY := "Every day",
    STARTED := "Engines that are started",
    CONNECTION := "Running engines, and the connection",
    GAME := "The game",
    LEARNING := "Learning",
    FOLDER := "The run's folder",
    EVALUATION := "Evaluation and films, while it learns",
    SEVERAL := "The same run with several seeds",
    RAY := "Ray RLlib",
    SHOWN := "What you see",
)


class EngineUse(NamedTuple):
    """Engines of which kinds an option is for: `env`, `engine`, `url`, by the option that names them; and in words."""

    kinds: tuple[str, ...]
    words: str


HOSTED_HERE = EngineUse(("env",), "it is for a Gymnasium env that is hosted here")
STARTED_HERE = EngineUse(("env", "engine"), "it is for engines that are started here")
RUNNING = EngineUse(("url",), "it is for engines that run already")


class OptionRow(NamedTuple):
    """What the table says of an option beside its name, type and default.

    Attributes:
        kind: what it may be; None, too, where that is the default.
        help: of its flag; "": it stands in YAML files only.
        resume: APPLIED, UNSAID, or the cure with which another value is refused.
        rllib: BOTH backends have it, RLlib ONLY, or what to do instead with RLlib.
        flag: its name, where that is another one. multiple: it may be given several times.
        group: under which heading of `ue-rl train --help` it stands; "": it has no flag.
        connects: it is an argument of `ue_rl.connect`, passed on as it is.
        engines: those that it is for; None: all. For others an earlier layer's value goes, and a value that is given
            is refused with the cure `elsewhere`, or, where `tolerated`, told of in these words.
        merged: a file and the flags each have a part of it; the later one wins key by key.
        starts: it starts a program, imports a module, reads pickles or writes a file: a stranger's needs trust.
        complete: the words that a shell offers for it, or a key of COMPLETIONS of the command.
    """

    kind: OptionKind
    help: str = ""
    resume: str = APPLIED
    rllib: str = BOTH
    flag: str = ""
    multiple: bool = False
    group: str = ""
    connects: bool = False
    engines: EngineUse | None = None
    elsewhere: str = ""
    tolerated: bool = False
    merged: bool = False
    starts: bool = False
    complete: str | tuple[str, ...] = ()


def option(default: Any, kind: OptionKind, help: str = "", **more: Any) -> Any:
    """A field of TrainOptions; `more` as OptionRow has it."""
    metadata = {"row": OptionRow(kind, help, **more)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)
