"""samples/unity: what the C# bridge reads and writes, against the golden vectors, and its numbers against Python's."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.samples.unity_engine import MARKS, ROOT, asked, played
from ue_rl.devtools.testing.golden import GoldenVector, load_golden
from ue_rl.protocol.spec import Channel
from ue_rl.protocol.text import decode_handshake

VECTORS = ROOT / "docs" / "protocol-vectors.json"

pytestmark = MARKS

# -- the golden vectors


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
    return played(probe, command, file, PROBE_CULTURE="comma")


def significant(text: str) -> int:
    return len(text.lstrip("-").split("e")[0].replace(".", "").strip("0"))


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_float32_read_back_as_themselves_and_none_is_longer_than_it_must_be(
    probe: Path, tmp_path: Path, count: int
) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
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
