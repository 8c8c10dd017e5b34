"""`ue-rl arena`: plays, compares, replays and shows; what is wrong is told in one sentence."""

from __future__ import annotations

import json
import re
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

pytest.importorskip("pydantic", reason="the extra arena is not installed")

from tests.harness.warm_cli import WarmCli
from tests.support.command_line import run
from tests.support.stopping import HALF, stops_in_the_middle
from ue_rl.plugins.arena import AgentArena, evals


def said(*words: object) -> Result:
    return run("arena", *words, env={"COLUMNS": "200"})


def test_a_run_is_logged_replayed_and_shown(tmp_path: Path) -> None:
    out = tmp_path / "run"
    gif = ["--gif", tmp_path / "a.gif"]
    if find_spec("PIL") is None:
        gif = []
    assert "resources 10" in said("run", "foraging", "--out", out, *gif).output
    files = ["decisions.jsonl", "episodes.json", "replay.trace", "summaries.jsonl"]
    assert sorted(path.name for path in out.iterdir()) == files
    (episode,) = json.loads((out / "episodes.json").read_text())
    replayed = said("replay", out / "replay.trace")
    assert replayed.output.startswith(f"{episode['ticks']} ticks, each as it was")
    assert "move_to" in said("inspect", out).output
    one = said("inspect", out, "--tick", "3", "--agent", "forager").output
    assert '"tick": 3' in one
    assert '"tick": 4' not in one


def test_a_model_is_inspected_as_one_page(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    lines = ["<b>Feast</b>\n1. find\n2. eat", '{"tool": "idle", "params": {}, "reasoning": "<script>"}']
    config.write_text(json.dumps({  # JSON is YAML
        "scene": {"name": "foraging", "max_ticks": 3}, "behavior": "llm", "llm": {"plan_every": 100},
        "backend": {"kind": "scripted", "lines": lines + lines[1:] * 5},
    }))  # fmt: skip
    out = tmp_path / "run"
    result = said("run", "--config", config, "--out", out, "--set", "memory.capacity=3")
    assert result.exit_code == 0, result.output
    assert "find" in said("inspect", out).output, "the plan's tree"
    said("inspect", out, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<details>") == 3
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "&lt;b&gt;Feast" in page
    assert not re.search(r'(src|href)="', page), "it needs nothing else"


def test_behaviours_are_compared(tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    result = said("eval", "crafting", "--episodes", "1", "--seeds", "2", "--json", table)
    assert "rules" in result.output
    assert [row["label"] for row in json.loads(table.read_text())] == ["rules", "random"]


def test_what_a_file_says_holds_for_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("scene: {max_ticks: 3}\nbehavior: random\nepisodes: 2\nseed: 7\ndeadline: 5\n")
    table = tmp_path / "t.json"
    asked: list[Any] = []
    real = evals.evaluate

    def evaluate(game: Any, behaviors: Any, **options: Any) -> Any:
        asked.append((game.max_ticks, options))
        return real(game, behaviors, **options)

    monkeypatch.setattr(evals, "evaluate", evaluate)
    assert said("eval", "crafting", "--config", config, "--seeds", "1", "--json", table).exit_code == 0
    assert [(row["label"], row["episodes"]) for row in json.loads(table.read_text())] == [("random", 2)]
    assert asked == [(3, {"episodes": 2, "seeds": range(7, 8), "deadline": 5.0})]
    assert said("run", "crafting", "--config", config, "--out", tmp_path / "run").exit_code == 0
    played = json.loads((tmp_path / "run" / "episodes.json").read_text())
    assert [(each["seed"], each["ticks"]) for each in played] == [(7, 3), (8, 3)]
    assert said("run", "crafting", "--config", config, "--set", "seed=null").exit_code == 0
    served: list[Any] = []
    monkeypatch.setattr(AgentArena, "run", lambda arena, ready: served.append(arena.deadline))
    for words in ((), ("--deadline", "2s")):
        assert said("serve", "--agent", "a=rules", "--config", config, *words).exit_code == 0
    assert said("serve").exit_code == 0
    assert served == [5.0, 2.0, 10.0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "moon"), "no such scene"),
        (("run", "foraging", "--behavior", "wizard"), "no such behaviour"),
        (("run", "foraging", "--set", "seed"), "not an override"),
        (("run", "foraging", "--behavior", "llm"), "no such backend"),
        (("serve", "--agent", "a=wizard"), "no such behaviour"),
    ],
)
def test_what_is_wrong_is_told(words: tuple[str, ...], told: str) -> None:
    result = said(*words)
    assert result.exit_code == 1
    assert type(result.exception).__name__ == "WrongCommandLine"
    assert told in str(result.exception)


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"garbage")
    assert "not a trace" in str(said("replay", tmp_path / "x").exception)


def test_ctrl_c_in_the_middle_of_a_request(tmp_path: Path, warm_cli: WarmCli) -> None:
    stops_in_the_middle(warm_cli, "arena serve --port 0", r"127.0.0.1:(\d+)", HALF["http"], tmp_path, code=130)


def test_what_guards_it_is_handed_on(tmp_path: Path, warm_cli: WarmCli) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of these tests, no other\n")
    token.chmod(0o600)
    words = ["arena", "serve", "--port", "0", "--token-file", token, "--allow-host", "a.example"]
    serving = warm_cli.start(list(map(str, words)), output=tmp_path / "said.txt", cwd=tmp_path)
    url = serving.wait_for(r"http://127.0.0.1:\d+")
    right = {"Authorization": f"Bearer {token.read_text().strip()}"}
    expected = ((right, "127.0.0.1", 200), ({}, "127.0.0.1", 401), (right, "a.example", 200), (right, "b.example", 421))
    for headers, host, status in expected:
        answer = httpx.get(f"{url}/health", headers={**headers, "Host": host}, timeout=20, trust_env=False)
        assert answer.status_code == status, (headers, host)
    serving.signal(signal.SIGINT)
    serving.wait()
