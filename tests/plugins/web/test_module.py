"""samples/web/ue_rl.js: the protocol's test vectors, `ue-rl check`, tokens, and its package."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.docs.blocks import labelled
from tests.plugins.web.pages import NODE, ROOT, WEB, free_port, needs_node, node
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools import check as compliance
from ue_rl.system import errors

CARTS = WEB / "carts" / "node.js"
VECTORS = json.loads((ROOT / "docs" / "protocol-vectors.json").read_text("utf-8"))
pytestmark = needs_node


def is_for_it(vector: dict[str, Any]) -> bool:
    """A request or a call to an engine of many envs, each of one agent; without what the module has no answer to."""
    line = vector.get("request") or vector.get("call") or ""
    config = vector.get("config", "")
    other = re.match(r"\s*(GOALS|RENDER|PAUSE|TIME_SCALE)", line, re.I)
    return bool(line) and not other and "ENV_TYPE=MULTI" in config and "AGENTS" not in config


def test_the_vectors_of_requests_and_calls() -> None:
    assert NODE is not None
    mine = [vector for vector in VECTORS if is_for_it(vector)]
    assert len(mine) > 20
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
        elif "call" in vector:
            assert not told["answers"][0].startswith("REFUSED="), (vector, told)
        else:
            assert "refused" not in told, (vector, told)
            seen = {ask["env"]: ask for ask in told["asks"]}
            for ask in vector["asks"]:
                same(ask, seen[ask["env"]], vector)


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


def test_ue_rl_check_finds_nothing_in_the_carts() -> None:
    port = free_port()
    with node(CARTS, str(port), "4"):
        open_transport(f"tcp://127.0.0.1:{port}", wait=20.0).close()
        report = compliance.check(f"tcp://127.0.0.1:{port}")
    found = [f for f in report.findings if f.outcome in (compliance.Verdict.FAIL, compliance.Verdict.WARN)]
    assert not found, "\n".join(map(str, found))
    assert report.mistakes == []
    assert report.count(compliance.Verdict.PASS) > 30


GUARDED = """
import {{ Carts }} from "{carts}";
import {{ connect, listen }} from "{module}";
const [where, token] = process.argv.slice(2);
if (where.includes("://")) connect(new Carts(2), {{ url: where, token }});
else await listen(new Carts(2), {{ port: Number(where), token }});
"""


@pytest.mark.parametrize("carrier", ["tcp", "page"])
@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        ("a secret of sixteen bytes", "a secret of sixteen bytes", None),
        ("a secret of sixteen bytes", "another one, and a longer one", errors.AccessRefused),
        ("a secret of sixteen bytes", "", errors.AccessRefused),
        ("", "a secret of sixteen bytes", errors.AccessRefused),
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
