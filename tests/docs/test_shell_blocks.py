"""What the pages let a reader type: bash reads it, every `ue-rl` takes its options and values, every file is there.

The commands of the quickstart are run. Compilers and engines are run where their programs are tested (tests/samples).
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import ue_rl.cli.train as train_command
from tests.docs.blocks import ROOT, Block, blocks, every, pages
from tests.harness.warm_cli import WarmCli
from ue_rl.bridges import run_in_process
from ue_rl.cli import cli
from ue_rl.connections.launching.template import Template
from ue_rl.training.config import read_config, resolve

THEIRS = {
    "engine.py",
    "optuna_search.py",
    "./carts",
    "./engine",
    "./onnx_demo",
    "./client_demo",
    "./Game.sh",
    "samples/cpp/build/reach",
}
OURS = re.compile(r"(samples|tests|benchmarks|ue_rl|docs)/[\w./*-]+|constraints\.txt")
MADE = re.compile(r"/build\b|/build/")
FILLED = {"port": 7777, "num_envs": 4, "seed": 0, "engine": 0}


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a script, without what is set before it, and the parts of a pipe one by one."""
    text = re.sub(r"(^|  +)# .*$", "", text, flags=re.M).replace("\\\n", " ").replace("<this repository>", "URL")
    lines = shlex.shlex(text, posix=True, punctuation_chars="&|;\n")
    lines.whitespace, lines.whitespace_split = " \t", True
    words: list[str] = []
    for word in [*lines, "\n"]:
        if set(word) <= set("&|;\n"):
            while words and re.match(r"\w+=", words[0]):
                del words[0]
            if words:
                yield words
            words = []
        else:
            words.append(word)


class Parsed(Exception):
    """`ue-rl train` has understood what it is to do."""


@pytest.fixture(autouse=True)
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(given: Any, config: Any, **more: Any) -> None:
        resolve(given, config, **more)
        raise Parsed

    def read(path: Path) -> dict[str, Any]:
        return read_config(path) if path.parts[0] == "samples" else {}

    monkeypatch.setattr(train_command, "read_config", read)
    monkeypatch.setattr(train_command, "resolve", stop)
    monkeypatch.chdir(ROOT)


def ue_rl(words: list[str]) -> None:
    """Each option exists, and takes the value; a run's options go together."""
    words = [word for word in words if word != "--debug"]
    group = click.Context(cli, info_name="ue-rl")
    command = cli.get_command(group, words[0])
    assert command is not None, words[0]
    if isinstance(command, click.Group) and words[1:]:  # `ue-rl runs` alone is a command
        group, words = click.Context(command, info_name=words[0], parent=group), words[1:]
        command = command.get_command(group, words[0])
        assert command is not None, words[0]
    with command.make_context(words[0], words[1:], parent=group) as context:
        if words[0] == "train":
            with pytest.raises(Parsed):
                command.invoke(context)
        engine = context.params.get("engine")
        if engine and ".." not in engine:
            check(Template(engine).fill(**FILLED))


def pip(words: list[str]) -> None:
    """Extras that we have."""
    known = configparser.ConfigParser()
    known.read(ROOT / "setup.cfg")
    for extras in re.findall(r"(?:^|\s)(?:ue_rl|\.)\[([\w,]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(known["options.extras_require"]), extras


def python(words: list[str]) -> None:
    """A file of ours, with options that it has; or a module."""
    if words[0] == "-m":
        theirs = ("pytest", "venv", "http.server", "rl_zoo3.train")
        assert words[1] in theirs or (ROOT / f"{words[1].replace('.', '/')}.py").exists(), words
    elif words[0] not in THEIRS:
        code = (ROOT / words[0]).read_text("utf-8")
        assert [
            word for word in words if word.startswith("--") and word.lstrip("-").replace("-", "_") not in code
        ] == []


def curl(words: list[str]) -> None:
    """What is posted to an arena is answered."""
    from ue_rl.plugins.arena import AgentArena, AgentObservation, RulesBehavior

    path = re.fullmatch(r"http://127\.0\.0\.1:5000(/.*)", words[-1])
    assert path is not None, words
    arena = AgentArena.connect(port=0)
    arena.register("scout", RulesBehavior())
    arena.tick([AgentObservation(agent_id="scout")])
    try:
        body = words[words.index("-d") + 1].encode() if "-d" in words else None
        headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
        asked = urllib.request.Request(arena.start().url + path[1], body, headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert "error_code" not in json.loads(answer.read())
    finally:
        arena.stop()


def anything(words: list[str]) -> None:
    """Another project's program: only its files are looked at."""


OTHERS = {"git", "cd", ".", "mkdir", "rm", "cp", "echo", "mkdocs", "cmake", "g++", "cc", "mcs", "mono", "dotnet", "ray",
          "kubectl", "flatc", "auditwheel", "cibuildwheel", "godot3-server", "node", "npm", "openssl", "chmod",
          "tensorboard", *THEIRS}  # fmt: skip
PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "ue-rl": ue_rl, "pip": pip, "python": python, "python3": python, "curl": curl, **dict.fromkeys(OTHERS, anything),
}  # fmt: skip


def check(words: list[str]) -> None:
    """One command."""
    program = words[0].removeprefix(".venv/bin/")
    if re.match(r"(godot|unity|unreal|unreal-editor):", program):
        return
    assert program in PROGRAMS, f"no test knows how to look at {words[0]!r}"
    PROGRAMS[program](words[1:])
    target = words[words.index("-o") + 1] if "-o" in words else ""
    for word in words:
        for path in [found.group() for found in OURS.finditer(word)]:
            if path != target and not MADE.search(path) and word[: word.find(path)][-1:] not in ("/", "~", "."):
                assert list(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.parametrize("block", every("bash"), ids=str)
def test_what_is_typed_is_understood(block: Block) -> None:
    for words in commands(block.text):
        check(words)


def test_bash_reads_every_block() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not there")
    whole = "\n".join(f"block{at}() {{\n{block.text}\n}}" for at, block in enumerate(every("bash")))
    whole = whole.replace("<this repository>", "URL")
    done = subprocess.run([bash, "-n"], input=whole, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", every("bat"), ids=str)
def test_windows_is_told_the_same(block: Block) -> None:
    """The commands of the block before it, in what PowerShell and cmd both read: no &&, no single quotes."""
    assert not re.search(r"&&|'", block.text)
    before = [each for each in blocks(block.page) if each.language == "bash" and each.line < block.line][-1]
    spelled = before.text.replace("python3", "py").replace(". .venv/bin/activate", r".venv\Scripts\activate")
    assert block.text.splitlines() == spelled.replace(" && ", "\n").replace("'", '"').splitlines()


def inline(page: str) -> list[str]:
    """Each `ue-rl ..` within a sentence."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text("utf-8"), flags=re.S | re.M)
    said = [" ".join(code.split()) for code in re.findall(r"`(ue-rl [^`]+)`", text)]
    return [line for line in said if not re.search(r"COMMAND|RUN|HOST|GAME|FILE|FOLDER|\[|\.\.|--\w+$", line)]


@pytest.mark.parametrize("page", [page for page in pages() if inline(page) and page != "CHANGELOG.md"])
def test_what_a_sentence_says_can_be_typed(page: str) -> None:
    for line in inline(page):
        words = shlex.split(line)[1:]
        if len(words) > 1:
            ue_rl(words)
        else:
            assert cli.get_command(click.Context(cli), words[0]) is not None, line


@pytest.mark.slow
def test_the_quickstart(warm_cli: WarmCli, tmp_path: Path) -> None:
    """Steps 2 to 4, with fewer steps and episodes. What `ue-rl check` says of these carts: test_fifty_lines.py."""
    from samples.fifty_lines.carts import Carts

    typed = [words for block in blocks("docs/quickstart.md") for words in commands(block.text) if words[0] == "ue-rl"]
    assert [words[1] for words in typed] == ["train", "play", "inspect", "check", "train", "play"]
    with run_in_process(Carts) as engine:
        for number, words in enumerate(words for words in typed if words[1] != "check"):
            line = re.sub(r"--timesteps \d+", "--timesteps 64 --n-steps 8 --eval-episodes 1", shlex.join(words[1:]))
            line = re.sub(r"--episodes \d+", "--episodes 1 --max-episode-steps 20", line).replace(
                "7777", str(engine.port)
            )
            run = warm_cli.start(shlex.split(line), output=tmp_path / f"{number}.txt", cwd=tmp_path)
            assert run.wait(60) == 0, run.text
    assert (tmp_path / "agent.gif").stat().st_size > 1000


def test_what_is_cut_into_commands() -> None:
    script = "A=1 pip x -c y  # no\npython a.py \\\n  --b 'c d' && . z | mono w\n\n"
    assert [*commands(script)] == [["pip", "x", "-c", "y"], ["python", "a.py", "--b", "c d"], [".", "z"], ["mono", "w"]]
