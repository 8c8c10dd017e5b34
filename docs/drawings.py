"""Draws the pictures of the pages on training: python docs/drawings.py

concepts.svg, engine-life.svg (its arrows are those of ue_rl.connections.engines.lifecycle.FOLLOWS), run-folder.svg,
realtime.svg.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from ue_rl.connections.engines.lifecycle import FOLLOWS, LifeState

DOCS = Path(__file__).resolve().parent
FILL = {
    "blue": ("#e3f2fd", "#1e88e5"), "green": ("#e8f5e9", "#43a047"), "yellow": ("#fff8e1", "#ffa000"),
    "violet": ("#f3e5f5", "#8e24aa"), "red": ("#ffebee", "#e53935"), "grey": ("#eceff1", "#607d8b"),
}  # fmt: skip


class Drawing:
    """A picture that grows by boxes, arrows and words.

    Args:
        width, height: of the whole. title: what one hears who does not see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-labelledby="title" font-family="system-ui, sans-serif">',
            f'<title id="title">{escape(title)}</title>',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#455a64"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>',
        ]

    def frame(self, x: int, y: int, width: int, height: int) -> None:
        """A dashed one."""
        self.lines.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" stroke="#90a4ae" '
            'stroke-width="1.5" stroke-dasharray="6 4"/>'
        )

    def box(self, x: int, y: int, width: int, height: int, colour: str, name: str, *more: str) -> None:
        """With a name, and smaller lines below it."""
        fill, stroke = FILL[colour]
        self.lines.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'
        )
        top = y + (height - 19 * len(more)) // 2 + 5
        self.words(x + width // 2, top, name, size=14, bold=True)
        for line, text in enumerate(more, 1):
            self.words(x + width // 2, top + 19 * line, text)

    def arrow(self, path: str) -> None:
        """Along an SVG path."""
        self.lines.append(f'<path d="{path}" fill="none" stroke="#455a64" stroke-width="1.6" marker-end="url(#tip)"/>')

    def words(self, x: int, y: int, text: str, *, size: int = 12, bold: bool = False, at: str = "middle") -> None:
        """One line of text."""
        weight = ' font-weight="600"' if bold else ""
        colour = "#263238" if bold else "#455a64"
        self.lines.append(
            f'<text x="{x}" y="{y}" text-anchor="{at}" font-size="{size}"{weight} fill="{colour}">{escape(text)}</text>'
        )

    def code(self, x: int, y: int, text: str) -> None:
        """A name of a file."""
        self.lines.append(
            f'<text x="{x}" y="{y}" font-size="13" font-family="ui-monospace, monospace" fill="#263238">'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """The whole file."""
        return "\n".join([*self.lines, "</svg>", ""])


def concepts() -> str:
    """Engine and trainer, what is between them, and the file that goes back."""
    draw = Drawing(
        880,
        400,
        "Engine with its bridge, transport, trainer with its VecEnv, and the ONNX file that goes back into the game",
    )
    draw.frame(20, 44, 240, 210)
    draw.frame(620, 44, 240, 210)
    draw.words(24, 34, "the engine: a process that listens", size=13, at="start")
    draw.words(624, 34, "the trainer: a process that connects", size=13, at="start")
    draw.box(32, 64, 216, 70, "blue", "your game", "env 0, env 1, .. env N-1")
    draw.box(32, 170, 216, 66, "green", "bridge", "reset, action, observation, reward")
    draw.box(330, 158, 220, 90, "yellow", "transport", "lines of text over TCP, or", "shared memory on one machine")
    draw.box(632, 170, 216, 66, "green", "VecEnv", "arrays of N rows, float32")
    draw.box(632, 64, 216, 70, "blue", "learning", "PPO, SAC, .. (Stable-Baselines3)")
    draw.box(330, 310, 220, 62, "violet", "agent.onnx", "the policy: obs in, actions out")
    for path in (
        "M120 134 V168", "M160 170 V136", "M248 188 H328", "M330 222 H250", "M550 188 H630", "M632 222 H552",
        "M720 170 V136", "M760 134 V168", "M848 99 H870 V341 H552", "M330 341 H10 V99 H30",
    ):  # fmt: skip
        draw.arrow(path)
    for x in (294, 586):
        draw.words(x, 180, "states")
        draw.words(x, 240, "actions")
    draw.words(710, 333, "export, compared with the trained policy")
    draw.words(170, 333, "runs in the game, without Python")
    return draw.svg()


def engine_life() -> str:
    """The states of an engine and which may follow which."""
    state = LifeState
    alive = [
        state.LAUNCHING, state.LOADING, state.CONNECTING, state.STREAMING, state.PLAYING, state.EPISODE_OVER,
    ]  # fmt: skip
    draw = Drawing(930, 480, "The states of an engine: what may follow what is in the table below the picture")
    width, top, high = 112, 96, 48
    left = {each: 20 + 130 * place for place, each in enumerate([state.IDLE, *alive])}
    middle = {each: x + width // 2 for each, x in left.items()}
    drawn: set[tuple[LifeState, LifeState]] = set()

    def arrow(before: LifeState, after: LifeState, path: str) -> None:
        drawn.add((before, after))
        draw.arrow(path)

    draw.frame(140, top - 18, 780, high + 36)
    for each, x in left.items():
        colour = "grey" if each is state.IDLE else "green" if each in alive[3:] else "blue"
        draw.box(x, top, width, high, colour, each.value)
    chain = list(left)
    for before, after in pairwise(chain[:-1]):
        arrow(before, after, f"M{left[before] + width} {top + 24} H{left[after] - 2}")
    playing, over = chain[-2:]
    arrow(playing, over, f"M{left[playing] + width} {top + 16} H{left[over] - 2}")
    arrow(over, playing, f"M{left[over]} {top + 32} H{left[playing] + width + 2}")
    idle, connecting, launching = middle[state.IDLE], middle[state.CONNECTING], middle[state.LAUNCHING]
    arrow(state.IDLE, state.CONNECTING, f"M{idle} {top} V50 H{connecting} V{top - 2}")
    draw.words((idle + connecting) // 2, 42, "an engine that runs already is only dialled")

    low = 214
    draw.box(540, low, 130, high, "red", state.TIMEOUT.value)
    draw.box(696, low, 130, high, "red", state.CONNECTION_LOST.value)
    draw.box(600, 314, 166, high, "yellow", state.CLEANUP.value)
    draw.box(600, 412, 166, high, "red", state.QUOTA_SPENT.value)
    for x in (605, 761):
        draw.arrow(f"M{x} {top + high + 18} V{low - 2}")
    draw.arrow(f"M890 {top + high + 18} V338 H768")
    draw.words(683, 190, "from each of the six")
    draw.words(890, 356, "the run ends", at="end")
    for each in alive:
        drawn |= {(each, state.TIMEOUT), (each, state.CONNECTION_LOST), (each, state.CLEANUP)}
    arrow(state.TIMEOUT, state.CLEANUP, f"M630 {low + high} V312")
    arrow(state.CONNECTION_LOST, state.CLEANUP, f"M736 {low + high} V312")
    arrow(state.CLEANUP, state.QUOTA_SPENT, "M660 362 V410")
    arrow(state.QUOTA_SPENT, state.CLEANUP, "M706 412 V364")
    arrow(state.CLEANUP, state.CONNECTING, f"M600 326 H{connecting} V{top + high + 2}")
    arrow(state.CLEANUP, state.LAUNCHING, f"M600 338 H{launching} V{top + high + 2}")
    arrow(state.CLEANUP, state.IDLE, f"M600 350 H{idle} V{top + high + 2}")
    draw.words(connecting - 8, 240, "dialled again", at="end")
    draw.words(launching + 8, 240, "started again", at="start")
    draw.words(idle + 8, 240, "the run is over", at="start")
    draw.words(594, 390, "lost too often", at="end")
    missing = {(before, after) for before, follows in FOLLOWS.items() for after in follows} ^ drawn
    if missing:
        raise ValueError(f"the picture and FOLLOWS differ: {missing}")
    return draw.svg()


FOLDER = {
    "what you ship": (
        "violet",
        ("model.onnx", "the policy, for the game"),
        ("model.zip", "the model, for Python"),
        ("vecnormalize.pkl", "its statistics, with --normalize"),
    ),
    "what --resume reads": (
        "green",
        ("config.yaml", "every option of the run"),
        ("checkpoints/", "the newest three"),
        ("  0007_350000_steps/", "model, statistics, replay buffer, state, manifest"),
        ("  last", "the name of the newest"),
        ("handshake.txt", "what the engine announced"),
    ),
    "what you look at": (
        "blue",
        ("curves.png", "returns over env-steps"),
        ("episodes.csv", "return, length and time of each episode"),
        ("progress.csv, events.out.tfevents.*", "a row for each rollout; TensorBoard"),
        ("run.log", "connection, engines, checkpoints, errors"),
        ("engines/engine-0.log", "what a started engine has printed"),
    ),
}


def run_folder() -> str:
    """A run's folder, its files by what they are for."""
    row, gap = 24, 24
    height = 52 + sum(row * len(files) + gap for _, *files in FOLDER.values())
    title = "The files of a run's folder: what you ship, what a resumed run reads, and what you look at"
    draw = Drawing(880, height, title)
    draw.code(24, 36, "runs/ppo-CartPole-v1-1/")
    y = 52
    for title, (colour, *files) in FOLDER.items():
        fill, stroke = FILL[colour]
        high = row * len(files) + 12
        draw.lines.append(f'<rect x="24" y="{y}" width="832" height="{high}" rx="6" fill="{fill}" stroke="{stroke}"/>')
        for place, (name, meaning) in enumerate(files):
            depth = len(name) - len(name.lstrip())
            draw.code(40 + 10 * depth, y + 23 + row * place, name.strip())
            draw.words(340, y + 23 + row * place, meaning, size=13, at="start")
        draw.words(842, y + 23, title, size=13, bold=True, at="end")
        y += high + 12
    return draw.svg()


def realtime() -> str:
    """Agents that think, sessions between them and a world that moves, and the workers that move it."""
    title = "Agents read the newest observation of their session and queue actions; workers tick the game by a clock"
    draw = Drawing(880, 330, title)
    draw.words(110, 34, "agents think, for as long as they like", size=13)
    draw.words(420, 34, "a session for each", size=13)
    draw.words(750, 34, "the world moves", size=13)
    for row, name in enumerate(("a policy", "a language model", "a person")):
        y = 54 + 90 * row
        draw.box(20, y, 170, 64, "blue", name)
        draw.box(310, y, 100, 64, "yellow", "mailbox", "1, newest wins")
        draw.box(430, y, 100, 64, "violet", "queue", "16 actions")
        draw.arrow(f"M310 {y + 20} H192")
        draw.arrow(f"M190 {y + 46} H250 V{y + 72} H480 V{y + 66}")
        draw.arrow(f"M640 {y + 8} H580 V{y - 8} H360 V{y - 2}")
        draw.arrow(f"M530 {y + 46} H638")
        draw.words(250, y + 14, "observation")
    draw.frame(630, 44, 230, 220)
    draw.box(640, 54, 210, 64, "green", "one game", "all rows in one call, or one each")
    draw.box(640, 144, 210, 110, "grey", "workers", "a fixed number of threads", "tick by a clock, or when told")
    draw.arrow("M745 144 V120")
    draw.words(440, 312, "What is overwritten or dropped is counted. No tick waits for an agent.", size=13)
    return draw.svg()


PICTURES = {
    "concepts.svg": concepts, "engine-life.svg": engine_life, "run-folder.svg": run_folder, "realtime.svg": realtime,
}  # fmt: skip

if __name__ == "__main__":
    for file, draw_it in PICTURES.items():
        (DOCS / file).write_text(draw_it(), "utf-8")
