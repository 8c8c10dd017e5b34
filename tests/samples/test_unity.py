"""samples/unity/UeRlBridge.cs, compiled and run with Debian's mono: its codec on lines, and engines over TCP.

tests/samples/unity holds what the tests compile beside it; Unity's few types are stand-ins there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest

import ue_rl
from tests.harness.warm_cli import WarmCli
from tests.samples import building, heuristic, programs
from tests.samples.reach import Reach
from tests.support.waiting import eventually
from ue_rl.bridges import run_in_thread
from ue_rl.connecting import open_transport
from ue_rl.errors import EngineDisconnected, UeRlError, UnsupportedByEngine
from ue_rl.spec import Channel
from ue_rl.testing.golden import GoldenVector, load_golden
from ue_rl.testing.raw_client import RawClient
from ue_rl.wire import decode_handshake

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, OWN = ROOT / "samples" / "unity", Path(__file__).resolve().parent / "unity"
BRIDGE = SAMPLE / "UeRlBridge.cs", SAMPLE / "UeRlSharedMemory.cs", SAMPLE / "UeRlHeuristic.cs"
VECTORS = ROOT / "docs" / "protocol-vectors.json"
MONO, MCS = shutil.which("mono"), shutil.which("mcs")
NUM_ENVS = 4

pytestmark = pytest.mark.skipif(MONO is None or MCS is None, reason="mono (mono-mcs, mono-runtime) is not installed")


CONSOLE = (*BRIDGE, *sorted((SAMPLE / "console").glob("*.cs")))
PROBE = (*BRIDGE, SAMPLE / "UeRlBehaviour.cs", SAMPLE / "console" / "ReachGame.cs", *sorted(OWN.glob("*.cs")))


def compiled(name: str, *sources: Path) -> Path:
    command = ["mcs", "-langversion:7", "-optimize+", "-warn:4", "-warnaserror+", "-out:OUT", *sources]
    return building.built(name, command, sources)


@pytest.fixture(scope="module")
def engine_exe() -> Path:
    return compiled("engine.exe", *CONSOLE)


@pytest.fixture(scope="module")
def probe() -> Path:
    return compiled("probe.exe", *PROBE)


@contextlib.contextmanager
def started(words: Sequence[str | Path], **environment: str) -> Iterator[int]:
    """The port on which the engine listens, by its own word."""
    command = [str(MONO), *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().replace(":", " ").split()[-1])
        assert process.poll() is None, "the engine has ended"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def reach(engine_exe: Path) -> Iterator[int]:
    with started(
        [engine_exe, "--port", "0", "--num-envs", str(NUM_ENVS)], LANG="de_DE.UTF-8", LC_ALL="de_DE.UTF-8"
    ) as port:
        yield port


@pytest.fixture(scope="module")
def sink(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "sink", "0", str(NUM_ENVS)], PROBE_CULTURE="comma") as port:
        yield port


@pytest.fixture(scope="module")
def plain(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "plain", "0", str(NUM_ENVS)]) as port:
        yield port


@pytest.fixture(scope="module")
def agents(probe: Path) -> Iterator[int]:
    with started([probe, "serve", "agents", "0", "2"]) as port:
        yield port


def connect(port: int, **options: Any) -> ue_rl.UnrealVecEnv:
    return ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=10, wait=10, **options)


class Trainer:
    """A bare socket behind the handshake."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.lines = self.sock.makefile("rb")
        self.handshake = self.read()
        if not self.handshake.startswith("CONFIG:"):
            self.__exit__()
            raise AssertionError(self.handshake)

    def read(self) -> str:
        return self.lines.readline().decode().strip()

    def ask(self, line: str | bytes) -> str:
        self.sock.sendall(line.encode() + b"\n" if isinstance(line, str) else line)
        return self.read()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
        self.sock.close()


# -- lines: the golden vectors


def asked(probe: Path, lines: Sequence[tuple[str, str, str]]) -> list[str]:
    text = "".join("\t".join(line) + "\n" for line in lines)
    done = subprocess.run(
        [str(MONO), str(probe), "codec"], input=text, capture_output=True, text=True, encoding="utf-8", timeout=60,
        check=True, env={**os.environ, "PROBE_CULTURE": "comma"},
    )  # fmt: skip
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def vectors(kind: str) -> list[GoldenVector]:
    """Those of what this file speaks: no RLBASE, and no images, which need shared memory."""
    found = [one for one in load_golden(VECTORS) if one.kind == kind]
    return [
        one for one in found if "RLBASE" not in one.config and "IMAGE" not in one.config and "ENV_TYPE" in one.config
    ]


def test_golden_handshakes_are_written_so_that_they_mean_the_same(probe: Path) -> None:
    good = [one for one in vectors("handshake") if one.reject is None]
    assert len(good) >= 12
    for vector, line in zip(good, asked(probe, [("handshake", one.config, "") for one in good]), strict=True):
        expected = decode_handshake(vector.config.encode())
        got = decode_handshake(line.encode())
        assert got == replace(expected, version=1, channel=expected.channel or Channel.ANY), (vector.name, line)


def test_golden_handshakes_that_are_wrong_are_refused_at_the_start(probe: Path) -> None:
    # by the file itself; those about keys twice, the type of a value and VERSION have no way to be said in C#
    wrong = [one for one in vectors("handshake") if one.reject is not None]
    answers = asked(probe, [("handshake", one.config, "") for one in wrong])
    assert all(answer.startswith("reject ") for answer in answers), list(zip(wrong, answers, strict=True))
    by_the_file = [one for one in answers if one.startswith("reject ArgumentException")]
    assert len(by_the_file) >= 11, answers


def test_golden_requests(probe: Path) -> None:
    every = vectors("request")
    answers = asked(probe, [("request", one.config, str(one.request)) for one in every])
    assert len(every) >= 25
    for vector, answer in zip(every, answers, strict=True):
        if vector.reject is not None:
            assert answer.startswith("reject UeRlProtocolException the trainer broke"), (vector.name, answer)
            continue
        expected = []
        for ask in sorted(vector.asks, key=lambda one: (one.env, one.agent or 0)):
            names = ("env", "agent", "reset", "seed", "options", "set")
            row = {name: getattr(ask, name) for name in names if getattr(ask, name) is not None}
            if not ask.reset:
                del row["reset"]
            if ask.action is not None:
                row["action"] = np.float32(ask.action).tolist()
            expected.append(row)
        got = json.loads(answer) if answer.startswith("[") else []
        for row, ask in zip(got, expected, strict=True):  # mono writes 15 digits where that does for its own reader
            if "action" in row:  # a row of the arrays may be longer than its group's
                row["action"] = np.float32(row["action"][: len(ask["action"])]).tolist()
        assert got == expected, (vector.name, answer)


def test_golden_replies(probe: Path) -> None:
    good = [one for one in vectors("reply") if one.canonical and one.states]
    assert len(good) >= 7

    def bits(value: float) -> str:
        return str(int(np.float32(value).view(np.uint32)))

    lines = []
    for one in good:
        rows = [
            " ".join([
                str(s.env), str(s.agent or 0), bits(s.reward), str(s.done), str(s.truncated), s.mask or "-",
                "-" if s.info is None else base64.b64encode(json.dumps(s.info).encode()).decode(),
                *map(bits, s.obs),
            ])
            for s in one.states
        ]  # fmt: skip
        lines.append(("reply", one.config, "|".join([str(one.seq or 0), *rows])))
    for vector, answer in zip(good, asked(probe, lines), strict=True):
        assert answer == vector.reply, vector.name


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (f"0 0 0 0 0 11111 - {0x7FC00000}", "observation 0 of env 0 is NaN"),
        (f"1 0 {0xFF800000} 0 0 11111 - 0", "reward of env 1 is "),
        ("0 0 0 0 0 00111 - 0", "leaves number 0 without any choice"),
    ],
)
def test_what_must_not_be_said_is_refused(probe: Path, row: str, why: str) -> None:
    config = "CONFIG:OBS=1;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;ACT_SPACE=MULTI_DISCRETE(2,3);FEATURES=MASK"
    (answer,) = asked(probe, [("reply", config, f"0|{row}")])
    assert answer.startswith("reject InvalidOperationException")
    assert why in answer


def test_golden_calls(probe: Path) -> None:
    every = vectors("call")
    answers = asked(probe, [("call", one.config, str(one.call)) for one in every])
    assert len(every) >= 13
    for vector, answer in zip(every, answers, strict=True):
        if vector.reject is not None:
            assert answer.startswith("REFUSED="), vector.name
        elif vector.name in ("call-get-of-one-env", "call-spelt-otherwise"):  # values that this game does not have
            assert answer == {"call-get-of-one-env": "VALUES=top%20speed:3"}.get(
                vector.name, "VALUES=gravity:3.7,top%20speed:2"
            )
        else:
            assert answer == vector.answer, vector.name


# -- numbers


def run_probe(probe: Path, command: str, file: Path, data: bytes) -> list[str]:
    file.write_bytes(data)
    done = subprocess.run(
        [str(MONO), str(probe), command, str(file)], capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "PROBE_CULTURE": "comma"},
    )  # fmt: skip
    return done.stdout.splitlines()


def significant(text: str) -> int:
    return len(text.lstrip("-").split("e")[0].replace(".", "").strip("0"))


def test_a_million_float32_read_back_as_themselves_and_none_is_longer_than_it_must_be(
    probe: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 1_000_000, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0, -0.0, 1e-45, 1.17549435e-38, 3.4028235e38, 2**24, 0.1, 1e16, 1e17, 0.0001], np.float32)
    values = np.concatenate([bits.view(np.float32), edges, (2.0 ** np.arange(-149, 128)).astype(np.float32)])
    values = values[np.isfinite(values)]
    texts = run_probe(probe, "floats", tmp_path / "floats.bin", values.astype("<f4").tobytes())
    back = np.array(texts, np.float64).astype(np.float32)
    np.testing.assert_array_equal(back.view(np.uint32), values.view(np.uint32))
    for value, text in zip(values[::97], texts[::97], strict=True):
        assert significant(text) == significant(np.format_float_scientific(value)), text


def test_numbers_are_read_as_the_nearest_double_then_as_float32(probe: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    doubles = rng.integers(0, 2**63 - 2**53, 5000, dtype=np.uint64).view(np.float64)
    texts = [repr(float(value)) for value in doubles]
    for low in doubles[:1000]:  # the middles between two doubles, exactly, and a little more
        high = np.nextafter(low, np.inf)
        middle = exact_middle(float(low), float(high))
        texts += [middle, middle.replace("e", "1e")]
    texts += ["1" * 40, "9" * 400, "0." + "3" * 2000, "0." + "0" * 400 + "1", "9007199254740993", "1e400", "-1e-400"]
    texts += [
        "5e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1.7976931348623159e308",
        "0e99999",
        "+2.",
    ]
    got = run_probe(probe, "parse", tmp_path / "texts.txt", "\n".join(texts).encode())
    with np.errstate(over="ignore"):
        expected = [f"{as_bits(float(text))} {int(np.float32(float(text)).view(np.uint32))}" for text in texts]
    assert got == expected
    wrong = [
        "",
        "+",
        "1e",
        "1e+",
        ".",
        "e1",
        "nan",
        "inf",
        "-inf",
        "0x10",
        "1_0",
        "1,0",
        "1 0",
        "--1",
        "1.2.3",
        "1e1.5",
    ]
    assert run_probe(probe, "parse", tmp_path / "wrong.txt", "\n".join(wrong).encode()) == ["none"] * len(wrong)


def as_bits(value: float) -> int:
    return int(struct.unpack("Q", struct.pack("d", value))[0])


def exact_middle(low: float, high: float) -> str:
    from decimal import Context, Decimal

    exact = Context(prec=2000)
    return f"{exact.divide(exact.add(Decimal(low), Decimal(high)), Decimal(2)):e}"


def test_parameters_are_written_so_that_the_same_double_is_read(probe: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate([
        rng.integers(0, 2**63 - 2**53, 2000, dtype=np.uint64).view(np.float64), rng.normal(0, 1, 2000),
        [0.1, 9.8, 5e-324, -1.7976931348623157e308, 0.84551240822557006, 1e-07, -0.0],
    ])  # fmt: skip
    texts = run_probe(probe, "doubles", tmp_path / "doubles.bin", values.tobytes())
    assert [as_bits(float(text)) for text in texts] == [as_bits(value) for value in values]
    assert texts[-7:-5] == ["0.1", "9.8"]


# -- over TCP


def rollout(env: ue_rl.UnrealVecEnv, steps: int = 150) -> bytes:
    """Observations, rewards, dones and terminal observations of a seeded run that ends episodes in both ways."""
    rng = np.random.default_rng(3)
    env.seed(11)
    obs = env.reset()
    seen, ends = [obs.tobytes()], set()
    for _ in range(steps):
        steered = np.clip(2 * obs[:, 4:6] - 2 * obs[:, 2:4], -1, 1)
        action = np.where(np.arange(env.num_envs)[:, None] % 2, steered, rng.uniform(-1, 1, steered.shape))
        obs, rewards, dones, infos = env.step(action.astype(np.float32))
        seen += [obs.tobytes(), rewards.tobytes(), dones.tobytes()]
        for info in np.array(infos)[dones]:
            seen.append(info["terminal_observation"].tobytes())
            ends.add(info["TimeLimit.truncated"])
    env.close()
    assert ends == {True, False}, "not both kinds of ends were compared"
    return b"".join(seen)


def test_the_rollout_is_that_of_the_same_task_in_python_to_the_bit_on_both_wirings(reach: int, probe: Path) -> None:
    with run_in_thread(Reach(NUM_ENVS, number=np.float64, shift=11)) as server:
        expected = rollout(connect(server.port, channel="shared"))
    assert rollout(connect(reach, channel="shared")) == expected
    assert rollout(connect(reach, channel="per_env")) == expected
    assert rollout(connect(reach, transport="shm")) == expected
    # the MonoBehaviour in Unity's order of FixedUpdate, physics and Update: each step is exactly one physics tick
    with started([probe, "serve", "behaviour", "0", str(NUM_ENVS), "-port=0"]) as port:
        assert rollout(connect(port, channel="shared")) == expected
        assert rollout(connect(port, channel="per_env")) == expected
        assert rollout(connect(port, transport="shm")) == expected


def test_masks_options_infos_and_truncation(sink: int) -> None:
    with Trainer(sink) as trainer:
        assert trainer.ask("ACT=RESET;ENV=2;SEED=7;OPTIONS=%7B%22a%22%3A%22short%22%7D") == (
            "OBS=0,9.8,0,7;REW=0;DONE=0;ENV=2;MASK=01111"
        )
        assert trainer.ask("ACT=-1,1;ENV=2") == (
            "OBS=1,9.8,0,0;REW=1;DONE=1;ENV=2;TRUNC=1;MASK=10111;"
            "INFO=%7B%22is_success%22%3A%20true%2C%20%22where%22%3A%20%22Z%C3%BCrich%22%7D"
        )
    for channel in ("shared", "per_env"):
        env = connect(sink, channel=channel)
        env.reset()
        assert [mask[:3].tolist() for mask in env.env_method("action_masks")] == [[False, True, True]] * NUM_ENVS
        for _ in range(20):
            _, _, dones, infos = env.step(np.tile(np.float32([1, 0]), (NUM_ENVS, 1)))
        assert dones.all()
        assert infos[0]["where"] == "Zürich"
        assert infos[0]["TimeLimit.truncated"]
        env.close()


def test_parameters_and_calls(sink: int) -> None:
    env = connect(sink)
    env.reset()
    assert env.get_params() == {"gravity": 9.8, "top speed": 0.1}
    env.set_params({"gravity": 1 / 3, "top speed": -1e-9}, env_id=1)
    assert env.get_params(env_id=1) == {"gravity": 1 / 3, "top speed": -1e-9}
    assert env.get_params(env_id=0)["gravity"] == 9.8
    env.close()
    with Trainer(sink) as trainer:
        assert trainer.ask("SET=gravity:21") == "REFUSED=the%20trainer%20broke%20the%20protocol%3A%20" + (
            "gravity%20is%20outside%20of%200%20to%2020%3A%2021"
        )
        assert trainer.ask("ACT=RESET;ENV=0;SET=gravity:3.5,top%20speed:2").startswith("OBS=0,3.5,")
        assert trainer.ask("GET=gravity") == "VALUES=gravity:3.5"
        assert trainer.ask("SET=gravity:9.8") == "VALUES=gravity:9.8"
        assert trainer.ask("TIME_SCALE=2") == "OK"
        assert trainer.ask("TIME_SCALE=101") == "REFUSED=not%20so%20fast"
        assert trainer.ask("GOALS=1,2/3,4||5,0.1/7,8") == "REW=-8,-19.8"
        assert (
            trainer.ask("RENDER;ENV=3")
            == "PICTURE=2,1,3;DATA=" + base64.b64encode(bytes([0, 1, 2, 3, 3, 255])).decode()
        )
        assert trainer.ask("TIME_SCALE=1") == trainer.ask("PAUSE=1") == "OK"
    with Trainer(sink) as trainer:  # the game went on when the session ended, so it can be paused again
        assert trainer.ask("PAUSE=1") == trainer.ask("PAUSE=0") == "OK"


def test_an_action_may_take_several_ticks(sink: int) -> None:
    with Trainer(sink) as trainer:
        trainer.ask("ACT=RESET;ENV=0;OPTIONS=%7B%22a%22%3A%22slow%22%7D")
        assert trainer.ask("ACT=1,1;ENV=0").startswith("OBS=5,")
        trainer.sock.sendall(b"ACT=1,1;ENV=0\nACT=1,1;ENV=0\n")
        assert "env%200%20was%20asked%20before%20its%20answer" in trainer.read()


def test_agents_come_and_go(agents: int) -> None:
    from ue_rl.agents import GroupVecEnv

    with Trainer(agents) as trainer:
        assert "CHANNEL=ANY;FEATURES=TRUNC,ERROR,SEQ;AGENTS=hider:2,seeker:1;OBS.hider=2;" in trainer.handshake
        assert trainer.ask("ACT=RESET;ENV=1") == (
            "OBS=100,100;REW=0;DONE=0;ENV=1;AGENT=0||OBS=120,120,120;REW=0;DONE=0;ENV=1;AGENT=2"
        )
        both = "ACT=0.5,1;ENV=1;AGENT=0||ACT=2;ENV=1;AGENT=2"
        assert trainer.ask(both).count("AGENT=") == 2
        assert "AGENT=1" in trainer.ask(both)  # it has just come
        third = trainer.ask(both + "||ACT=1,1;ENV=1;AGENT=1")
        assert third.endswith("||OBS=123,123,123;REW=2;DONE=1;ENV=1;AGENT=2")
        assert "agent%202%20of%20env%201%20is%20not%20there" in trainer.ask(both + "||ACT=1,1;ENV=1;AGENT=1")
    env = GroupVecEnv(
        open_transport(f"tcp://127.0.0.1:{agents}", timeout=10),
        "hider",
        others={"seeker": lambda obs: np.ones(len(obs), np.float32)},
    )
    assert env.reset().shape == (4, 2)
    env.step(np.zeros((4, 2), np.float32))
    env.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("fail at reset", "the game cannot go on: the level is missing"),
        ("fail in step", "the game cannot go on: a bug of the game"),
        ("nan", "observation 2 of env 0 is NaN"),
    ],
)
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_game_that_fails_ends_the_session_with_an_error_line(sink: int, options: str, why: str, channel: str) -> None:
    env = connect(sink, channel=channel)
    env.set_options([{"mood": options}] + [{}] * (NUM_ENVS - 1))
    with pytest.raises(UeRlError, match=why):
        env.reset()
        env.step(np.zeros((NUM_ENVS, 2), np.float32))
    env.close()
    env = connect(sink)
    assert env.reset().shape == (NUM_ENVS, 4)
    with pytest.raises(UnsupportedByEngine):
        env.set_params({"speed": 1.0})
    env.close()


def test_a_trainer_that_comes_right_after_another_is_not_told_to_wait_for_it(reach: int) -> None:
    for turn in range(60):
        with Trainer(reach) as trainer:  # it reads CONFIG first, not BUSY
            trainer.ask("ACT=RESET;ENV=3" if turn % 2 else "ACT=1,nan;ENV=0")


def test_each_answer_has_the_number_of_its_request(sink: int) -> None:
    with RawClient(("127.0.0.1", sink)) as client:
        assert "SEQ" in client.line().partition("FEATURES=")[2].partition(";")[0].split(",")
        programs.ask_with_numbers(client, "0,1")
    programs.ask_env_sockets_with_numbers(sink, NUM_ENVS, "0,1")


def test_the_plugin_s_trainer_may_start_for_long(probe: Path) -> None:
    with started([probe, "serve", "plain", "0", str(NUM_ENVS), "0.1", "30"]) as port:
        programs.start_for_long(port, NUM_ENVS)
        programs.give_way(port, 0)
        programs.give_up(port)
    with started([probe, "serve", "plain", "0", str(NUM_ENVS), "0.1", "0.2"]) as port:
        programs.give_way(port, 1)


# -- shared memory


@pytest.fixture(autouse=True)
def no_segment_stays() -> Iterator[None]:
    """An engine keeps none behind its session, whoever killed whom."""
    before = segments()
    yield
    eventually(lambda: segments() <= before)


def segments() -> set[str]:
    """Of this module's engines: others run meanwhile."""
    mine = {path.name for path in Path("/dev/shm").glob("ue_rl_*_*")}
    return {name for name in mine if Path(f"/proc/{name.split('_')[2]}/exe").resolve().name.startswith("mono")}


def test_it_needs_no_shared_memory() -> None:
    console = sorted((SAMPLE / "console").glob("*.cs"))
    exe = compiled("alone.exe", SAMPLE / "UeRlBridge.cs", SAMPLE / "UeRlHeuristic.cs", *console)
    with started([exe, "--port", "0", "--num-envs", "2"]) as port, Trainer(port) as trainer:
        assert "SHM=" not in trainer.handshake
        assert trainer.ask("ACT=RESET;ENV=1").startswith("OBS=")


def test_an_offer_that_is_not_taken_is_withdrawn(reach: int) -> None:
    with Trainer(reach) as trainer:
        name = trainer.handshake.partition("SHM=")[2].partition(":")[0]
        file = Path("/dev/shm", name)
        assert file.stat().st_mode & 0o777 == 0o600
        assert trainer.ask("ACT=RESET;ENV=0").startswith("OBS=")
        assert not file.exists()
    with Trainer(reach) as trainer:
        assert trainer.ask("SHM=ACCEPT;PROOF=" + "0" * 32).startswith("SHM=REFUSED;WHY=the%20proof")
        assert trainer.ask("ACT=RESET;ENV=0").startswith("OBS=")  # and it goes on in text


def test_what_travels_in_text_alone_is_not_offered(sink: int) -> None:
    env = connect(sink, transport="auto")
    assert env.reset().shape == (NUM_ENVS, 4)
    env.close()
    with pytest.raises(UnsupportedByEngine, match="does not offer it"):
        connect(sink, transport="shm")


def trajectory(port: int, transport: str, steps: int = 45, **options: Any) -> list[list[Any]]:
    """Of the sink: every array of the buffers, the masks among them, and actions that take several ticks."""
    carrier = open_transport(f"tcp://127.0.0.1:{port}", transport, timeout=10, **options)
    rng, seen = np.random.default_rng(5), []
    carrier.reset(seeds=[1, 1000, 2, 1000])
    for k in range(steps):
        buffers = carrier.receive()
        arrays = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.masks)
        seen.append([array.tolist() for array in arrays])
        if k % 10 == 9:
            carrier.reset([1, 3], seeds=[1000, 7])
        else:
            carrier.send_actions(rng.integers([-1, 0], 2, (NUM_ENVS, 2)).astype(np.float32))
    carrier.receive()
    carrier.close()
    return seen


def test_masks_partial_resets_and_long_actions_are_those_of_the_text(plain: int) -> None:
    expected = trajectory(plain, "tcp", channel="shared")
    assert trajectory(plain, "shm") == expected
    assert {flag for step in expected for row in step[4] for flag in row} == {0, 1}
    assert any(step[3][0] for step in expected)


def test_agents_are_those_of_the_text(agents: int) -> None:
    def history(transport: str) -> list[list[Any]]:
        carrier = open_transport(f"tcp://127.0.0.1:{agents}", transport, timeout=10)
        carrier.reset()
        seen = []
        for _ in range(6):
            buffers = carrier.receive()
            there = buffers.present.astype(bool)
            arrays = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated)
            seen.append([buffers.present.tolist(), *(array[there].tolist() for array in arrays)])
            carrier.send_actions(np.tile(np.float32([[0.5, 1], [1, 1], [2, 0]]), (2, 1)))
        carrier.receive()
        carrier.close()
        return seen

    expected = history("tcp")
    assert history("shm") == expected
    assert [step[0][:3] for step in expected] == [[1, 0, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (1001, "the game cannot go on: the level is missing"),
        (1002, "the game cannot go on: a bug of the game"),
        (1003, "observation 2 of env 1 is NaN"),
        (1004, "the mask of env 1 leaves number 0 without any choice"),
    ],
)
def test_a_game_that_fails_says_why_in_memory_too(plain: int, seed: int, why: str) -> None:
    carrier = open_transport(f"tcp://127.0.0.1:{plain}", "shm", timeout=10)
    with pytest.raises(EngineDisconnected, match=why):
        carrier.reset(seeds=[1, seed, 1, 1])
        carrier.receive()
        carrier.send_actions(np.zeros((NUM_ENVS, 2), np.float32))
        carrier.receive()
    carrier.close()
    assert len(trajectory(plain, "shm", steps=1)) == 1


Write = Callable[[Any], object]
BROKEN: dict[str, tuple[Write, str]] = {
    "an action that is not finite": (lambda memory: memory.actions.fill(np.nan), "ACT of env 0 is not a finite number"),
    "no choice": (lambda memory: memory.actions.fill(0.5), "ACT of env 0 is no choice of -1 to 1"),
    "ask": (lambda memory: memory.ask.fill(3), "ask of env 0 is neither 0, 1 nor 2"),
    "twice": (lambda memory: memory.words.increment_u64(memory.buffer, 40), "it asked before its answer"),
    "back": (lambda memory: memory.store_u64(40, 2**63 + 5), "it asked before its answer"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_trainer_that_breaks_the_rules_in_memory_is_told(plain: int, kind: str) -> None:
    write, why = BROKEN[kind]
    carrier: Any = open_transport(f"tcp://127.0.0.1:{plain}", "shm", timeout=10)
    memory = carrier.memory
    memory.ask.fill(1)
    write(memory)
    memory.words.increment_u64(memory.buffer, 40)
    assert eventually(lambda: memory.end_of(os.getpid())) == f"the trainer broke the protocol: {why}"
    assert memory.load_u32(12) == 0  # freed
    carrier.close()


@pytest.mark.parametrize("wiring", ["SHARED", "PER_ENV", "MEMORY"])
def test_steps_allocate_nothing(probe: Path, wiring: str) -> None:
    done = subprocess.run(
        [str(MONO), str(probe), "alloc", wiring, "10000", "8"], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "MONO_GC_PARAMS": "nursery-size=512k"},
    )  # fmt: skip
    collections, in_use, seen_by_the_meter = map(int, done.stdout.split())
    assert collections == 0
    assert in_use == 0
    assert seen_by_the_meter >= 64 * 20_000  # it does see 20 000 small objects


@pytest.mark.learning
def test_ppo_learns_the_task_through_a_launched_engine(engine_exe: Path, tmp_path: Path, warm_cli: WarmCli) -> None:
    words = ["train", "--engine", f"{MONO} {engine_exe} --port {{port}} --num-envs {{num_envs}} --seed {{seed}}"]
    words += ["--num-envs", "16", "--timesteps", "20480", "--run-id", "reach", "--log-dir", str(tmp_path)]
    words += ["--n-steps", "64", "--batch-size", "128", "--learning-rate", "2e-3", "--set", "gamma=0.98", "--seed", "0"]
    done = warm_cli.start(words, output=tmp_path / "out.txt", cwd=tmp_path)
    assert done.wait(110) == 0, done.text
    lines = (tmp_path / "reach" / "episodes.csv").read_text().splitlines()
    returns = [float(line.split(",")[lines[0].split(",").index("return")]) for line in lines[1:]]
    assert np.mean(returns[:50]) < 0
    assert np.mean(returns[-100:]) > 2.5


# -- heuristic mode


def played(*words: str | Path) -> list[str]:
    done = subprocess.run([str(MONO), *map(str, words)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_heuristic_is_shown_what_a_trainer_gets(engine_exe: Path) -> None:
    words = ["--num-envs", "2", "--seed", "3", "--max-steps", "15"]
    shown = played(engine_exe, "--heuristic", "6", *words)
    with started([engine_exe, "--port", "0", *words]) as port:
        heuristic.compare(shown, port)


def test_a_heuristic_plays_agents_and_masks(probe: Path) -> None:
    lines = played(probe, "play", "agents", "14", "1")
    assert lines[:4] == [
        "env 0, agent 0: obs[0]=0 obs[1]=0 | reward 0, return 0, step 0",
        "env 0, agent 2: obs[0]=20 obs[1]=20 obs[2]=20 | reward 0, return 0, step 0",
        "env 0, agent 0: obs[0]=1 obs[1]=1 | reward 1, return 1, step 1",
        "env 0, agent 2: obs[0]=21 obs[1]=21 obs[2]=21 | reward 1, return 1, step 1",
    ]
    ends = [line for line in lines if line.endswith(("done", "truncated"))]
    assert [line[:15] + line.partition("return")[2] for line in ends[:3]] == [
        "env 0, agent 2: 3, step 3, done",
        "env 0, agent 0: 6, step 6, truncated",
        "env 0, agent 1: 4, step 4, truncated",
    ]
    assert played(probe, "play", "sink", "3", "1")[1].startswith("env 0: step=1 gravity[m/s^2]=9.8 sum of actions=2 ")


def test_an_action_that_is_none_is_the_heuristic_s_fault(probe: Path) -> None:
    lines = played(probe, "play", "plain", "3", "1")
    assert lines[-1].startswith("the heuristic's action: ")
    assert len(lines) == 3


def test_the_behaviour_shows_the_first_env_on_the_screen(probe: Path) -> None:
    lines = played(probe, "play", "behaviour", "9", "2", "-heuristic=1")
    assert lines[0].endswith("step 0")
    assert [line.split(", ")[2] for line in lines[1:9]] == [f"step {step}" for step in range(1, 9)]


def test_what_the_demo_s_script_does_is_recorded_and_cloned(engine_exe: Path, probe: Path, tmp_path: Path) -> None:
    words = ["--port", "0", "--num-envs", "2", "--seed", "3"]
    with started([engine_exe, *words, "--demo"]) as port:
        found = heuristic.record(port, tmp_path / "shared", "shared")
        heuristic.record(port, tmp_path / "per-env", "per_env")
    with started([engine_exe, *words]) as port:
        heuristic.clone_and_play(port, found, tmp_path / "none")
    with started([probe, "serve", "behaviour", "0", "2", "-port=0", "-demo=1"]) as port:
        heuristic.record(port, tmp_path / "behaviour")


def test_a_game_that_acts_itself_says_so_beside_what_it_says_anyway(probe: Path) -> None:
    with started([probe, "serve", "sink-demo", "0", "2"], PROBE_CULTURE="comma") as port:
        with Trainer(port) as trainer:
            trainer.ask("ACT=RESET;ENV=1;SEED=1000")  # four ticks for each action; the heuristic is asked once
            told = quote('{"demo_action":[1,1]}')
            assert trainer.ask("ACT=0,0;ENV=1").endswith(f";ENV=1;MASK=11011;INFO={told}")
            trainer.ask("ACT=RESET;ENV=0;OPTIONS=%7B%22a%22%3A%22short%22%7D")
            _, _, info = trainer.ask("ACT=0,0;ENV=0").partition("INFO=")
            assert json.loads(unquote(info)) == {"demo_action": [1, 1], "is_success": True, "where": "Zürich"}
            for _ in range(3):
                trainer.ask("ACT=0,0;ENV=0")
            assert trainer.ask("ACT=0,0;ENV=0").startswith("ERROR=the%20game%20cannot%20go%20on%3A%20the%20heuristic")
    with started([probe, "serve", "agents-demo", "0", "1"]) as port, Trainer(port) as trainer:
        trainer.ask("ACT=RESET;ENV=0")
        rows = trainer.ask("ACT=0,0;ENV=0;AGENT=0||ACT=0;ENV=0;AGENT=2").split("||")
        told = [json.loads(unquote(row.partition("INFO=")[2])) for row in rows]
        assert told == [{"demo_action": [1, 1]}, {"demo_action": [1]}], rows


def test_a_game_that_acts_itself_needs_a_heuristic_and_info(probe: Path) -> None:
    config = "CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;FEATURES=DEMO"
    assert asked(probe, [("handshake", config, "")])[0].startswith("reject ArgumentException DEMO needs INFO")
    words = [str(MONO), str(probe), "serve", "idle-demo", "0", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "DEMO needs Heuristic" in done.stderr
