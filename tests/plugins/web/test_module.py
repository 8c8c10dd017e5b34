"""samples/web/ue_rl.js: the protocol's test vectors, `ue-rl check`, tokens, and its package."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.docs.blocks import labelled
from tests.plugins.web.pages import NODE, ROOT, WEB, needs_node, node
from tests.support.listening import free_port
from tests.support.waiting import eventually
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools import check as compliance
from ue_rl.system import errors

CARTS = WEB / "carts" / "node.js"
GAMES = Path(__file__).with_name("games.mjs")
VECTORS = json.loads((ROOT / "docs" / "protocol-vectors.json").read_text("utf-8"))
pytestmark = needs_node


def is_for_it(vector: dict[str, Any]) -> bool:
    """A request or a call to an engine of many envs."""
    line = vector.get("request") or vector.get("call") or ""
    return bool(line) and "ENV_TYPE=MULTI" in vector.get("config", "")


def test_the_vectors_of_requests_and_calls() -> None:
    assert NODE is not None
    mine = [vector for vector in VECTORS if is_for_it(vector)]
    assert len(mine) > 40
    script = Path(__file__).with_name("vectors.mjs")
    done = subprocess.run(
        [NODE, script], input=json.dumps(mine), capture_output=True, text=True, check=True, timeout=60
    )
    for vector, line in zip(mine, done.stdout.splitlines(), strict=True):
        told = json.loads(line)
        assert told["name"] == vector["name"]
        if "reject" in vector:
            refused = told.get("refused") or (told["answers"][0].startswith("REFUSED=") and told["answers"][0])
            assert refused, vector
            assert told["asks"] == [], "nothing is done of a request that is refused"
        elif "call" in vector and "GOAL_REWARD" not in vector["config"]:
            assert told["answers"][0].startswith("REFUSED=") == vector.get("answer", "").startswith("REFUSED=")
        elif vector.get("answer", "").startswith(("PICTURE", "REW", "OK")):
            assert told["answers"] == [vector["answer"]]
        elif "call" in vector:
            assert not told["answers"][0].startswith("REFUSED="), (vector, told)
        else:
            assert "refused" not in told, (vector, told)
            seen = {(ask["env"], ask.get("agent", 0)): ask for ask in told["asks"]}
            for ask in vector["asks"]:
                same(ask, seen[ask["env"], ask.get("agent", 0)], vector)


def same(ask: dict[str, Any], seen: dict[str, Any], vector: dict[str, Any]) -> None:
    """What the game saw is what the vector says."""
    if "action" in ask:
        np.testing.assert_array_equal(np.float32(seen["action"]), np.float32(ask["action"]), err_msg=vector["name"])
        return
    assert seen["reset"], vector
    if "seed" in ask and "SEED" in vector["config"]:
        assert seen["seed"] == str(ask["seed"]), vector
    if "options" in ask and "OPTIONS" in vector["config"]:
        assert seen["options"] == ask["options"], vector


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param((CARTS, "{port}", "4"), id="carts", marks=pytest.mark.exhaustive),
        pytest.param((GAMES, "everything", "{port}"), id="everything"),
        pytest.param((GAMES, "demo", "{port}"), id="demo", marks=pytest.mark.exhaustive),
        pytest.param((GAMES, "agents", "{port}"), id="agents", marks=pytest.mark.exhaustive),
    ],
)
def test_ue_rl_check_finds_nothing(engine: tuple[Path | str, ...]) -> None:
    port = free_port()
    script, *words = engine
    with node(Path(script), *[word.format(port=port) for word in map(str, words)]):
        open_transport(f"tcp://127.0.0.1:{port}", wait=20.0).close()
        report = compliance.check(f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0, patience=1.0))
    found = [f for f in report.findings if f.outcome in (compliance.Verdict.FAIL, compliance.Verdict.WARN)]
    assert not found, "\n".join(map(str, found))
    assert report.mistakes == []
    assert report.count(compliance.Verdict.PASS) > 30


# What agents may do to rows: who is there, who acts, who ends.
OF_AGENTS = (
    "fields of rows", "partial batches", "rows in another order", "ends of episodes", "last observations",
    "a seed twice", "what actions do", "steps behind an end", "next trainer",
)  # fmt: skip


def test_ue_rl_check_finds_nothing_in_the_rows_of_agents() -> None:
    port = free_port()
    with node(GAMES, "agents", str(port)):
        open_transport(f"tcp://127.0.0.1:{port}", wait=20.0).close()
        report = compliance.check(
            f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0, patience=1.0), only=OF_AGENTS
        )
    assert report.mistakes == []
    assert report.count(compliance.Verdict.PASS) >= len(OF_AGENTS) - 2


GUARDED = """
import {{ Carts }} from "{carts}";
import {{ connect, listen }} from "{module}";
const [where, token] = process.argv.slice(2);
if (where.includes("://")) connect(new Carts(2), {{ url: where, token }});
else await listen(new Carts(2), {{ port: Number(where), token }});
"""


RIGHT, OTHER = "a secret of sixteen bytes", "another one, and a longer one"


@pytest.mark.parametrize(
    ("mine", "theirs", "error", "carrier"),
    [
        (RIGHT, RIGHT, None, "tcp"),
        (RIGHT, OTHER, errors.AccessRefused, "tcp"),
        (RIGHT, "", errors.AccessRefused, "tcp"),
        ("", RIGHT, errors.AccessRefused, "tcp"),
        (RIGHT, RIGHT, None, "page"),
        (RIGHT, OTHER, errors.AccessRefused, "page"),
        pytest.param(RIGHT, "", errors.AccessRefused, "page", marks=pytest.mark.exhaustive),
        pytest.param("", RIGHT, errors.AccessRefused, "page", marks=pytest.mark.exhaustive),
    ],
)
def test_a_token(tmp_path: Path, carrier: str, mine: str, theirs: str, error: type[Exception] | None) -> None:
    script, port = tmp_path / "engine.mjs", free_port()
    script.write_text(GUARDED.format(carts=WEB / "carts" / "carts.js", module=WEB / "ue_rl.js"))
    options: dict[str, Any] = {"wait": 20.0, "connect_timeout": 10.0}
    if mine:
        options["token_file"] = tmp_path / "token"
        options["token_file"].write_text(mine)
        options["token_file"].chmod(0o600)
    with node(script, str(port) if carrier == "tcp" else f"ws://127.0.0.1:{port}", theirs):
        if error is not None:
            with pytest.raises(error):
                open_transport(f"{carrier}://127.0.0.1:{port}", **options)
            return
        with open_transport(f"{carrier}://127.0.0.1:{port}", **options) as transport:
            transport.reset()
            assert transport.receive().obs.shape == (2, 2)


def test_a_wrong_proof_is_refused_by_the_game_itself(tmp_path: Path) -> None:
    """Our trainers would notice a game that does not know the token; others need not."""
    script = tmp_path / "engine.mjs"
    port = free_port()
    script.write_text(GUARDED.format(carts=WEB / "carts" / "carts.js", module=WEB / "ue_rl.js"))

    def dialled() -> socket.socket | None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        return None

    with node(script, str(port), "a secret of sixteen bytes"), eventually(dialled) as trainer:
        lines = trainer.makefile("rw", encoding="ascii", newline="\n")
        assert lines.readline().startswith("AUTH=")
        lines.write(f"AUTH={64 * 'a'},{64 * 'b'}\n")
        lines.flush()
        assert lines.readline() == "ERROR=wrong%20token\n"
        assert lines.readline() == ""


def test_the_game_of_the_page_browser_md(tmp_path: Path) -> None:
    script, port = tmp_path / "game.mjs", free_port()
    text = labelled("docs/browser.md", "js game").replace('"./ue_rl.js"', json.dumps(str(WEB / "ue_rl.js")))
    script.write_text(text.replace("numEnvs: 4 })", f"numEnvs: 4 }}), {{ url: 'ws://127.0.0.1:{port}' }}"))
    with node(script), open_transport(f"page://127.0.0.1:{port}", wait=20.0) as transport:
        transport.reset()
        before = transport.receive().obs.copy()
        transport.send_actions(np.full((4, 1), 0.5, np.float32))
        np.testing.assert_allclose(transport.receive().obs, before + 0.5, rtol=1e-6)
        np.testing.assert_allclose(transport.buffers.rewards, -abs(before + 0.5).ravel(), rtol=1e-6)


def test_the_package_says_what_it_has() -> None:
    package = json.loads((WEB / "package.json").read_text("utf-8"))
    assert package["version"] == ue_rl.__version__
    for name in package["files"]:
        assert (WEB / name).is_file()
    exported = r"^export (?:async )?(?:function|class|const) (\w+)"
    names = set(re.findall(exported, (WEB / "ue_rl.js").read_text("utf-8"), re.M))
    assert names == set(re.findall(exported, (WEB / "ue_rl.d.ts").read_text("utf-8"), re.M))


def test_the_carts_have_at_most_fifty_lines() -> None:
    assert len((WEB / "carts" / "carts.js").read_text("utf-8").splitlines()) <= 50


@contextmanager
def game(name: str) -> Iterator[BaseTransport]:
    """One of games.mjs, over TCP."""
    port = free_port()
    with node(GAMES, name, str(port)), open_transport(f"tcp://127.0.0.1:{port}", wait=20.0) as transport:
        yield transport


def test_calls_reach_the_game() -> None:
    with game("everything") as transport:
        assert transport.spec.features >= {"RENDER", "PAUSE", "TIME_SCALE", "GOAL_REWARD", "MASK", "SEQ", "AUTORESET"}
        picture = transport.call("RENDER;ENV=2")
        assert picture == "PICTURE=2,3,3;DATA=AgIC////////////////////"
        assert transport.call("GOALS=1,2/3,4||5,0.5/7,8") == "REW=-2,-2"
        assert transport.call("SET=pace:2;ENV=1") == "VALUES=pace:2"
        assert transport.call("GET=pace;ENV=0") == "VALUES=pace:1"
        assert transport.call("PAUSE=1") == "OK"
        assert transport.call("TIME_SCALE=4") == "OK"
        with pytest.raises(errors.CommandFailed, match="so fast it cannot be"):
            transport.call("TIME_SCALE=1000")
        transport.reset(options=[{"x": 1.5}, {"x": 0.0}, {"x": 0.0}])
        assert transport.receive().obs[:, 0].tolist() == [1.5, 0, 0]
        transport.send_actions(np.ones((3, 1), np.float32))
        states = transport.receive()
        assert states.obs[:, 0].tolist() == [2.0, 1.0, 0.5]
        assert states.infos[0] == {"paused": True, "scale": 4, "text": "é;|%"}
    with node(GAMES, "everything", str(port := free_port())):
        for _ in range(2):  # a game that was paused goes on with the session's end
            with open_transport(f"tcp://127.0.0.1:{port}", wait=20.0) as transport:
                transport.reset()
                transport.receive()
                transport.send_actions(np.ones((3, 1), np.float32))
                assert not transport.receive().infos[0]["paused"]
                transport.call("PAUSE=1")


def test_infos_keep_zeros_signs_and_leave_out_what_json_has_not() -> None:
    with game("figures") as transport:
        transport.reset()
        transport.receive()
        transport.send_actions(np.ones((3, 1), np.float32))
        infos = transport.receive().infos
        assert str(infos[0]) == "{'zero': -0.0, 'parts': {'list': [1.5, -0.0, 0]}, 'none': None, 'text': '-0'}"
        assert infos[1] == {"one": 1}
        assert 2 not in infos


def test_a_person_plays_while_a_trainer_records() -> None:
    """The numbers of a step are ignored, and those that were taken stand in its info."""
    with game("demo") as transport:
        transport.reset(options=[{"x": 2.0}, {"x": -2.0}, {"x": 0.5}])
        transport.receive()
        transport.send_actions(np.ones((3, 1), np.float32))
        states = transport.receive()
        assert states.obs[:, 0].tolist() == [1.5, -1.5, 0.0]
        assert [states.infos[env]["demo_action"] for env in range(3)] == [[0], [1], [0]]


def test_agents_come_and_go() -> None:
    with game("agents") as transport:
        assert transport.spec.agent_names == ("striker_0", "striker_1", "goalie")
        transport.reset()
        assert transport.receive().present.reshape(2, 3).tolist() == [[1, 0, 1]] * 2
        seen = []
        for _ in range(6):
            transport.send_actions(np.zeros((6, 2), np.float32))
            states = transport.receive()
            seen.append((states.present.reshape(2, 3)[1].tolist(), states.dones.reshape(2, 3)[1].tolist()))
        assert seen[0] == ([1, 1, 1], [0, 0, 0])
        assert seen[3] == ([1, 1, 1], [1, 0, 0])
        assert seen[5][0] == [0, 1, 1]
        assert states.dones.reshape(2, 3)[1, 1:].tolist() == [1, 1]
        assert states.truncated.reshape(2, 3)[1, 1:].tolist() == [0, 1]
        assert states.rewards.reshape(2, 3)[1, 1:].tolist() == [0.25, -1]
        assert states.infos[5] == {"age": 6}


def test_heuristic_mode_plays_without_a_trainer(tmp_path: Path) -> None:
    script = tmp_path / "play.mjs"
    script.write_text(
        f"""
        import {{ MultiEnvBridge, play }} from "{WEB / "ue_rl.js"}";
        class Count extends MultiEnvBridge {{
          x = 0;
          handleResetForEnv() {{ this.x = 0; }}
          handleResponseActionsForEnv(_, [step]) {{ this.x += step; }}
          createStateStringForEnv() {{ return [this.x]; }}
          calculateRewardForEnv() {{ return [this.x, this.x >= 4]; }}
          heuristic(_, [x]) {{ return [x + 1]; }}
        }}
        const lines = [];
        const game = new Count({{ obsSize: 1, actSize: 1, obsNames: ["x"] }});
        const playing = play(game, {{ stepsPerSecond: 200, onSeen: (env, text) => {{
          lines.push(text);
          if (lines.length === 4) {{ console.log(JSON.stringify([lines, game.played.returns])); playing.close(); }}
        }} }});
        """
    )
    assert NODE is not None
    done = subprocess.run([NODE, script], capture_output=True, text=True, check=True, timeout=60)
    lines, returns = json.loads(done.stdout)
    assert lines == [
        "env 0: x=0 | a new episode",
        "env 0: x=1 | reward 1, return 1, step 1",
        "env 0: x=3 | reward 3, return 4, step 2",
        "env 0: x=7 | reward 7, return 11, step 3, done",
    ]
    assert returns == [11]


def test_numbers_are_short_and_the_float32_that_was_meant(tmp_path: Path) -> None:
    """Of any size; what stands in a Float32Array is not written with the digits of a double."""
    script = tmp_path / "numbers.mjs"
    script.write_text(
        f"""
        import {{ readFileSync }} from "node:fs";
        import {{ MultiEnvBridge, Session }} from "{WEB / "ue_rl.js"}";
        const numbers = new Float32Array(readFileSync(0).buffer.slice(0));
        class Many extends MultiEnvBridge {{
          handleResetForEnv() {{}}
          createStateStringForEnv() {{ return numbers; }}
        }}
        const [answer] = new Session(new Many({{ obsSize: numbers.length, actSize: 1 }})).take("ACT=RESET;ENV=0");
        console.log(/OBS=([^;]*)/.exec(answer)[1]);
        """
    )
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 30_000, dtype=np.uint32).view(np.float32)
    sized = rng.uniform(-1, 1, 30_000).astype(np.float32) * np.float32(10) ** rng.integers(-8, 9, 30_000)
    numbers = np.concatenate(
        [bits[np.isfinite(bits)], sized.astype(np.float32), np.float32([0, -0.0, 0.1, 1 / 3, 1e6])]
    )
    assert NODE is not None
    done = subprocess.run([NODE, script], input=numbers.tobytes(), capture_output=True, check=True, timeout=60)
    texts = done.stdout.decode().strip().split(",")
    read = np.array([float(text) for text in texts], np.float32)
    np.testing.assert_array_equal(read.view(np.uint32), numbers.view(np.uint32))
    usual = [text for text, x in zip(texts, numbers, strict=True) if 1e-5 < abs(x) < 1e5]
    assert max(map(len, usual)) <= 17
    assert sum(map(len, usual)) / len(usual) < 12
    assert texts[-3:] == ["0.1", "0.33333334", "1000000"]


def test_a_game_cannot_take_a_name_of_the_bridge_for_something_else() -> None:
    assert NODE is not None
    text = """
const { MultiEnvBridge } = await import(process.argv[1]);
for (const name of ["random", "spec", "numEnvs", "played"]) {
  class Game extends MultiEnvBridge {
    constructor() {
      super({ obsSize: 1, actSize: 1 });
      this[name] = [];
    }
  }
  try {
    new Game();
  } catch (error) {
    console.log(error.name, error.message);
  }
}
"""
    words = [NODE, "--input-type=module", "-e", text, str(WEB / "ue_rl.js")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    named = re.findall(r"^TypeError .*'(\w+)'", done.stdout, re.MULTILINE)
    assert named == ["random", "spec", "numEnvs", "played"], done.stdout
