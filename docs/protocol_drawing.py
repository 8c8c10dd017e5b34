"""Draws docs/protocol-step.svg, a session as lines between an engine and a trainer: python docs/protocol_drawing.py

The engine is that of docs/protocol-in-ten-minutes.md; tests/docs/test_protocol_engine.py holds it to these answers.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent / "protocol-step.svg"
CONFIG = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED"
SESSION = [  # (what happens, the trainer's line, how often it is sent, the engine's last answer)
    (
        "A reset of both envs",
        "ACT=RESET;ENV=0||ACT=RESET;ENV=1",
        1,
        "OBS=0.0;REW=-0.0;DONE=0;ENV=0||OBS=0.0;REW=-0.0;DONE=0;ENV=1",
    ),
    (
        "One step",
        "ACT=0.5;ENV=0||ACT=-1;ENV=1",
        1,
        "OBS=0.5;REW=-0.5;DONE=0;ENV=0||OBS=-1.0;REW=-1.0;DONE=0;ENV=1",
    ),
    (
        "Two steps later the episode of env 1 ends",
        "ACT=0.5;ENV=0||ACT=-1;ENV=1",
        2,
        "OBS=1.5;REW=-1.5;DONE=0;ENV=0||OBS=-3.0;REW=-3.0;DONE=1;ENV=1",
    ),
    (
        "Env 0 goes on, env 1 begins its next episode",
        "ACT=0.5;ENV=0||ACT=RESET;ENV=1",
        1,
        "OBS=2.0;REW=-2.0;DONE=0;ENV=0||OBS=0.0;REW=-0.0;DONE=0;ENV=1",
    ),
]
WIDTH, ENGINE, TRAINER, HEAD, PHASE = 900, 120, 780, 128, 116
NOTES = ["starts the episodes", "moves the points", "leaves env 1 as it is", "starts env 1 anew"]
STYLE = 'font-family="system-ui, sans-serif" font-size="14"'


def arrow(y: float, text: str, to_engine: bool) -> str:
    """A line of the protocol, above its arrow."""
    start, end = (TRAINER - 6, ENGINE + 8) if to_engine else (ENGINE + 6, TRAINER - 8)
    colour = "#1e88e5" if to_engine else "#43a047"
    tip = "trainer" if to_engine else "engine"
    return (
        f'<text x="{(ENGINE + TRAINER) / 2:g}" y="{y - 7:g}" text-anchor="middle" font-family="monospace" '
        f'font-size="13">{escape(text)}</text>'
        f'<path d="M{start} {y:g} L{end} {y:g}" stroke="{colour}" stroke-width="1.6" marker-end="url(#{tip})"/>'
    )


def drawing() -> str:
    """The whole picture as SVG."""
    height = HEAD + PHASE * len(SESSION) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {STYLE}>',
        "<title>The lines of a session: handshake, a reset, a step, the end of an episode</title>",
        "<defs>",
        *(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{colour}"/></marker>'
            for name, colour in (("trainer", "#1e88e5"), ("engine", "#43a047"))
        ),
        "</defs>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
    ]
    for x, name, fill, stroke in (
        (ENGINE, "engine (your game)", "#e8f5e9", "#43a047"),
        (TRAINER, "trainer (ue_rl)", "#e3f2fd", "#1e88e5"),
    ):
        out.append(f'<rect x="{x - 90}" y="14" width="180" height="34" rx="6" fill="{fill}" stroke="{stroke}"/>')
        out.append(f'<text x="{x}" y="36" text-anchor="middle" font-weight="600">{name}</text>')
        out.append(f'<path d="M{x} 48 V{height - 14}" stroke="#90a4ae" stroke-width="1.5" stroke-dasharray="6 4"/>')
    out.append(arrow(74, "connects", to_engine=True))
    out.append(arrow(104, CONFIG, to_engine=False))
    for number, (what, ask, _, answer) in enumerate(SESSION):
        top = HEAD + number * PHASE
        out.append(f'<rect x="20" y="{top}" width="{WIDTH - 40}" height="{PHASE - 12}" rx="6" fill="#eceff1"/>')
        for x in (ENGINE, TRAINER):
            out.append(f'<path d="M{x} {top + 26} V{top + PHASE - 12}" stroke="#90a4ae" stroke-dasharray="6 4"/>')
        out.append(f'<text x="32" y="{top + 18}" font-size="13" font-weight="600" fill="#37474f">{escape(what)}</text>')
        out.append(arrow(top + 50, ask, to_engine=True))
        out.append(f'<text x="{ENGINE + 14}" y="{top + 67}" font-size="12" fill="#546e7a">{NOTES[number]}</text>')
        out.append(arrow(top + 90, answer, to_engine=False))
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), "utf-8")
