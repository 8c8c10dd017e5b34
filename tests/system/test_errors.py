"""How an error reads."""

from __future__ import annotations

import pickle

import pytest

from ue_rl.protocol.text.notices import ended
from ue_rl.system import errors
from ue_rl.system.errors import ConfigurationError, UeRlError, printable


@pytest.mark.parametrize(
    ("cure", "text"),
    [
        ("raise --timesteps", "Raise --timesteps"),
        ("once more: check the log", "Once more: check the log"),
        ("does its loop run?", "Does its loop run?"),
        ("pip install ue_rl[train]", "pip install ue_rl[train]"),
        ("np.ascontiguousarray", "np.ascontiguousarray"),
        ("ue_rl.connect() chooses by itself", "ue_rl.connect() chooses by itself"),
        ("max_episode_steps=100 ends them", "max_episode_steps=100 ends them"),
        ("ue-rl serve --shm offers it", "ue-rl serve --shm offers it"),
        ("--force overwrites it", "--force overwrites it"),
    ],
)
def test_a_cure_begins_with_a_capital_letter_unless_it_begins_with_code(cure: str, text: str) -> None:
    assert str(UeRlError("it broke", cure=cure)) == f"it broke. {text}"


def test_what_could_steer_a_terminal_is_shown_as_an_escape() -> None:
    error = UeRlError("it broke", got="\x1b[2J\x07\r\u202eabc\u2028\u00a0", field="[/x]")
    assert str(error) == r"it broke (field [/x]); got \x1b[2J\x07\r\u202eabc\u2028\xa0"
    assert printable("two\nlines, ä and 日本") == r"two\nlines, ä and 日本"
    assert printable("two\nlines\x1b", lines=True) == "two\nlines\\x1b"


@pytest.mark.parametrize("feed", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\x1b[2K", "\x1c"])
def test_what_a_peer_sends_begins_no_line_of_its_own(feed: str) -> None:
    forged = f"x{feed}2026-01-01 00:00:00,000 INFO ue_rl: forged"
    for error in (
        UeRlError(forged), UeRlError("no", field=forged), UeRlError("no", got=forged), UeRlError("no", expected=forged),
        UeRlError("no", got=forged.encode()), UeRlError("no", got=[forged]), ended(forged),
    ):  # fmt: skip
        assert len(str(error).splitlines()) == len(error.plain().splitlines()) == 1
        assert "\x1b" not in str(error)


def test_a_wrong_argument_is_the_callers_fault_unless_it_is_said_otherwise() -> None:
    assert (ConfigurationError("no").fault, ConfigurationError("no", fault="engine").fault) == ("caller", "engine")
    assert UeRlError("no").fault is None


def test_every_error_reaches_another_process_with_all_its_fields() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, UeRlError)]
    assert len(kinds) > 20
    for kind in kinds:
        error = kind("it failed", fault="engine", env_id=3, field="OBS", expected=[1, 2], got="nan", cure="try again")
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), vars(copy), str(copy)) == (kind, vars(error), str(error))
