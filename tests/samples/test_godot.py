"""A real game engine at the other end: samples/godot in a godot3-server process.

Each test drives the real process over TCP on loopback; the port is one that was free a moment before.
"""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.samples.godot_engine import GODOT, PROJECT, Engine, godot_environment, needs_godot, read_line, running
from ue_rl import UnrealVecEnv
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.protocol.text import Codec
from ue_rl.system.compiled import load

TEXT = "res://addons/ue_rl/ue_rl_text.gd"
NUM_ENVS = 4
# From the scaled observation to metres, m/s, radians, rad/s.
UNITS = np.array([2.4, 3.0, math.pi / 15, 3.0])

pytestmark = needs_godot


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(tmp_path_factory.mktemp("godot")) as started:
        yield started


def rollout(env: UnrealVecEnv, steps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Observations and dones of a seeded run with seeded actions that ends some episodes."""
    actions = np.random.default_rng(3).uniform(-1, 1, (steps, env.num_envs, 1)).astype(np.float32)
    env.seed(11)
    seen, dones = [env.reset()], []
    for action in actions:
        obs, _, done, _ = env.step(action)
        seen.append(obs)
        dones.append(done)
    return np.array(seen), np.array(dones)


def balance(obs: np.ndarray) -> np.ndarray:
    """A hand-written controller that keeps the pole up and the cart near the middle for good."""
    return np.clip(obs @ np.array([0.3, 0.6, 2.0, 2.0]), -1, 1).astype(np.float32)[:, None]


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_handshake_and_steps(engine: Engine, channel: str) -> None:
    env = engine.connect(channel)
    spec = env.engine_spec
    assert (spec.obs_size, spec.act_size, spec.num_envs, spec.version) == (4, 1, NUM_ENVS, 1)
    assert spec.channel is Channel.ANY
    assert spec.features == {"SEED", "TRUNC", "ERROR", "SEQ", "TIME_SCALE", "PAUSE"}
    assert env.reset().shape == (NUM_ENVS, 4)
    obs, rewards, dones, _ = env.step(np.zeros((NUM_ENVS, 1), np.float32))
    assert np.isfinite(obs).all()
    assert (rewards == 1).all()
    assert not dones.any()
    env.close()


def test_the_physics_is_that_of_a_cart_pole(engine: Engine) -> None:
    """Against the equations of motion, finely integrated: rigid bodies and joints must come to the same."""
    env = engine.connect()
    env.seed(5)
    push = np.array([0.0, 0.3, -0.3, 0.1])
    x, v, angle, turn = (env.reset() * UNITS).T
    mass, pole, half, ticks, fine = 1.0, 0.125, 0.5, 8, 100
    inertia = pole / 12 * (1.0**2 + 0.06**2) + pole * half**2
    for _ in range(ticks * fine):
        sin, cos = np.sin(angle), np.cos(angle)
        force, gravity = 10 * push + pole * half * turn**2 * sin, pole * 9.8 * half * sin
        coupling = pole * half * cos
        determinant = (mass + pole) * inertia - coupling**2
        v += (force * inertia - coupling * gravity) / determinant / 60 / fine
        turn += ((mass + pole) * gravity - coupling * force) / determinant / 60 / fine
        x += v / 60 / fine
        angle += turn / 60 / fine
    for _ in range(ticks):
        obs, *_ = env.step(push.astype(np.float32)[:, None])
    env.close()
    np.testing.assert_allclose(obs * UNITS, np.array([x, v, angle, turn]).T, rtol=0.04, atol=0.008)


def test_same_seeds_and_actions_give_the_same_run_to_the_bit(engine: Engine, tmp_path: Path) -> None:
    """On both wirings, after other episodes, and in a fresh process of the engine."""
    runs = []
    for channel in ("shared", "per_env", "shared"):
        env = engine.connect(channel)
        runs.append(rollout(env))
        env.close()
    with running(tmp_path) as fresh:
        env = fresh.connect("per_env")
        runs.append(rollout(env))
        env.close()
    assert runs[0][1].any(), "no episode ended: resets in mid-run were not compared"
    for obs, dones in runs[1:]:
        # The streams go on over unseeded resets too: a finished env draws its next start from its own generator.
        np.testing.assert_array_equal(obs, runs[0][0])
        np.testing.assert_array_equal(dones, runs[0][1])


@pytest.mark.parametrize("wiring", ["shared", "per_env"])
def test_envs_that_are_not_asked_stand_still(engine: Engine, wiring: str) -> None:
    """Env 0 takes 20 ticks and a reset; env 1 then goes on exactly as if nothing had been."""

    def run(disturbed: bool) -> list[str]:
        with contextlib.ExitStack() as stack:
            admin = stack.enter_context(engine.dial())
            if wiring == "per_env":
                socks = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", engine.port), timeout=10))
                    for _ in range(NUM_ENVS)
                ]
            else:
                socks = [admin] * NUM_ENVS

            def ask(env: int, text: str) -> str:
                socks[env].sendall(f"{text};ENV={env}\n".encode())
                return read_line(socks[env])

            ask(0, "ACT=RESET;SEED=1")
            seen = [ask(1, "ACT=RESET;SEED=2"), ask(1, "ACT=0.5")]
            if disturbed:
                for _ in range(20):
                    ask(0, "ACT=1")
                ask(0, "ACT=RESET")
            return [*seen, ask(1, "ACT=-0.25"), ask(1, "ACT=0")]

    assert run(disturbed=True) == run(disturbed=False)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_fallen_pole_terminates_and_only_that_env_begins_anew(engine: Engine, channel: str) -> None:
    env = engine.connect(channel)
    env.seed(0)
    obs = env.reset()
    for _ in range(60):
        action = balance(obs)
        action[2] = 1.0
        before = obs
        obs, rewards, dones, infos = env.step(action)
        if dones.any():
            break
    env.close()
    assert dones.tolist() == [False, False, True, False]
    assert rewards.tolist() == [1, 1, 0, 1]
    assert abs(infos[2]["terminal_observation"][2]) > 1
    assert infos[2]["TimeLimit.truncated"] is False
    assert abs(obs[2, 2]) <= 0.05
    others = [0, 1, 3]
    assert np.abs(obs[others] - before[others]).max() < 0.2


def test_a_balanced_pole_is_truncated_after_500_steps(engine: Engine) -> None:
    env = engine.connect("shared")
    env.seed(1)
    obs = env.reset()
    for step in range(1, 501):
        obs, rewards, dones, infos = env.step(balance(obs))
        assert (rewards == 1).all()
        assert dones.all() == (step == 500)
    env.close()
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * NUM_ENVS
    assert [info["episode"]["l"] for info in infos] == [500] * NUM_ENVS


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("1E+0", "1"),
        ("-.5E-0", "-0.5"),
        ("+1.e-1", "0.1"),
        ("0.5e0000000000000", "0.5"),
        ("1e-2147483648", "0"),
        ("0e99999", "0"),
        ("1;SEED=" + "0" * 30 + "7", "1"),
    ],
)
def test_a_number_is_what_the_grammar_says(engine: Engine, spelling: str, plain: str) -> None:
    """Each action moves the env as its plain spelling does, and both decoders of this package take it too."""
    answers = []
    with engine.dial() as sock:
        for text in (spelling, plain):
            sock.sendall(b"ACT=RESET;ENV=1;SEED=9\n")
            read_line(sock)
            sock.sendall(f"ACT={text};ENV=1\n".encode())
            answers.append(read_line(sock))
    assert answers[0] == answers[1]
    assert answers[0].startswith("OBS=")
    for compiled in {False, load("kernels") is not load("kernels", False)}:
        codec, batch = Codec(EnvSpec(4, 1, EnvType.MULTI, NUM_ENVS), compiled=compiled), ActionBatch(NUM_ENVS, 1)
        codec.decode_requests(f"ACT={spelling};ENV=1".encode(), batch)
        assert batch.actions[1, 0] == np.float32(plain)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("filling", [b"\n", b" \t\r\n"])
def test_a_flood_of_empty_lines_takes_no_memory_and_is_got_through(engine: Engine, filling: bytes) -> None:
    def resident() -> int:
        status = Path(f"/proc/{engine.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024

    flood = filling * ((16 << 20) // len(filling))
    with engine.dial() as sock:
        before = resident()
        sock.sendall(flood)
        sock.sendall(b"ACT=RESET;ENV=1\n")
        assert read_line(sock).startswith("OBS=")
        assert resident() - before < 10


@pytest.mark.parametrize("greeted", [True, False])
@pytest.mark.parametrize(
    ("last_words", "env_sockets"),
    [(b"ACT=RESET;ENV=0\n", 0), (b"ACT=RESET", 0), (b"\n" * 200_000, 0), (b"ACT=" + b"1" * 200_000, 0), (b"ACT=1", 2)],
    ids=["line", "half a line", "empty lines", "long line", "env sockets"],
)
def test_a_trainer_that_speaks_and_goes_is_not_taken_for_the_next(
    engine: Engine, last_words: bytes, env_sockets: int, greeted: bool
) -> None:
    """The engine sleeps meanwhile, so that it finds the dead one's words, its end and the next one all at once."""
    with contextlib.ExitStack() as stack:
        gone = engine.dial() if greeted else None
        engine.process.send_signal(signal.SIGSTOP)
        stack.callback(engine.process.send_signal, signal.SIGCONT)
        address = ("127.0.0.1", engine.port)
        gone = gone or socket.create_connection(address, timeout=10)
        gone.sendall(last_words)
        for _ in range(env_sockets):
            with socket.create_connection(address, timeout=10) as sock:
                sock.sendall(last_words)
        gone.close()
        following = stack.enter_context(socket.create_connection(address, timeout=10))
        engine.process.send_signal(signal.SIGCONT)
        assert read_line(following).startswith("CONFIG:")
        following.sendall(b"ACT=RESET;ENV=3\n")
        assert read_line(following).startswith("OBS=")


def digits(text: str) -> str:
    """The significant digits of a number: of 0.0120 and 1.2e-2 they are 12."""
    return text.lstrip("-").split("e")[0].replace(".", "").strip("0")


def test_numbers_are_the_shortest_that_keep_their_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 3000, dtype=np.uint64).astype(np.uint32)
    values = np.concatenate(
        [bits.view(np.float32), rng.normal(0, 1, 1000).astype(np.float32), np.float32([0, 1, -0.1])]
    )
    values = values[np.isfinite(values)]
    (tmp_path / "values.bin").write_bytes(values.astype("<f4").tobytes())
    script = tmp_path / "numbers.gd"
    script.write_text(f"""extends SceneTree

func _init():
	var text = load("{TEXT}")
	var file = File.new()
	file.open("{tmp_path / "values.bin"}", File.READ)
	for i in {len(values)}:
		print("x ", text.number(file.get_float()))
	quit()
""")
    done = subprocess.run(
        [str(GODOT), "--path", str(PROJECT), "-s", str(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=godot_environment(tmp_path),
    )
    texts = [line[2:] for line in done.stdout.splitlines() if line.startswith("x ")]
    assert len(texts) == len(values), done.stderr
    back = np.array([struct.unpack("f", struct.pack("f", float(text)))[0] for text in texts], np.float32)
    np.testing.assert_array_equal(back, values)
    shortest = [np.format_float_scientific(value, unique=True) for value in values]
    assert [len(digits(text)) for text in texts] == [len(digits(text)) for text in shortest]


def test_a_taken_port_is_said(engine: Engine, tmp_path: Path) -> None:
    engine.dial().close()
    done = subprocess.run(
        [str(GODOT), "--path", str(PROJECT), f"--port={engine.port}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=godot_environment(tmp_path),
    )
    assert f"cannot listen on 127.0.0.1:{engine.port}" in done.stderr


@pytest.mark.learning
def test_ppo_learns_on_the_real_physics(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROJECT / "train.py"), "--out", str(tmp_path / "model.zip")],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**godot_environment(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    before, after = (float(words[words.index(name) + 1]) for name in ("untrained:", "trained:"))
    assert before < 120
    assert after >= 400
    assert (tmp_path / "model.zip").is_file()
