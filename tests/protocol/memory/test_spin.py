"""Waits that spin: not after this thread was pushed off its core, and after each vain look for twice as long."""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path

import pytest

from tests.samples.building import compiled, kept

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("cc") is None, reason="needs a C compiler with POSIX's options"
)
HEADERS = Path(__file__).resolve().parents[3] / "ue_rl" / "system"
PROGRAM = r"""
#define _GNU_SOURCE
#include "_spin.h"
static Cores cores;
void start(void) { Cores none = {0}; cores = none; }
void pushed_off(int64_t now) { cores_are_short(&cores, now); }
int may(int64_t now) { cores.seen = now; return may_spin(&cores, now); }
#ifdef RUSAGE_THREAD
/* A look after this thread was off its core for so long, `pushed` and `blocked` times. */
int after(int64_t off, int pushed, int blocked)
{
    struct rusage used, then;
    do {
        start();
        look_at_cores(&cores, 1000000000);
        getrusage(RUSAGE_THREAD, &used);
        cores.pushed = used.ru_nivcsw - pushed, cores.blocked = used.ru_nvcsw - blocked;
        look_at_cores(&cores, cores.seen + off);
        getrusage(RUSAGE_THREAD, &then);
        /* again where it was off its core in between, too */
    } while (then.ru_nivcsw != used.ru_nivcsw || then.ru_nvcsw != used.ru_nvcsw);
    return cores.not_before != 0;
}
#endif
"""
MS = 1_000_000


@pytest.fixture(scope="module")
def rule() -> ctypes.CDLL:
    def make(folder: Path) -> None:
        (folder / "rule.c").write_text(PROGRAM)
        compiled(["cc", "-shared", "-fPIC", "-I", HEADERS, "-o", folder / "rule.so", folder / "rule.c"])

    library = ctypes.CDLL(str(kept(HEADERS.glob("*.h"), make, PROGRAM) / "rule.so"))
    for function in (library.pushed_off, library.may):
        function.argtypes = [ctypes.c_int64]
    return library


def pause(rule: ctypes.CDLL, at: int) -> int:
    """Milliseconds without spinning from `at` ms on."""
    return next(ms for ms in range(5000) if rule.may((at + ms) * MS))


def test_the_pause_doubles_while_it_is_not_over_and_begins_anew_once_it_is(rule: ctypes.CDLL) -> None:
    rule.start()
    assert rule.may(0)
    now, pauses = 1000, []
    for _ in range(8):
        rule.pushed_off(now * MS)
        pauses.append(pause(rule, now))
        now += pauses[-1] + 10  # it spins for 10 ms, and is pushed off again
    assert pauses == [50, 100, 200, 400, 800, 1600, 1600, 1600]
    now += 2000  # nobody pushed it off in the meantime
    rule.pushed_off(now * MS)
    assert pause(rule, now) == 50


def test_pushed_off_in_a_pause_lengthens_it_and_does_not_double_it(rule: ctypes.CDLL) -> None:
    rule.start()
    for at in (1000, 1030, 1060):
        rule.pushed_off(at * MS)
    assert not rule.may(1109 * MS)
    assert rule.may(1110 * MS)


@pytest.mark.skipif(sys.platform != "linux", reason="switches are counted for each thread on Linux only")
@pytest.mark.parametrize(
    ("off", "pushed", "blocked", "short"),
    [(MS, 1, 0, 1), (MS, 0, 0, 0), (MS, 1, 1, 0), (20_000, 1, 0, 0), (MS, 5, 0, 1)],
)
def test_only_a_core_that_was_taken_away_for_a_while_counts(
    rule: ctypes.CDLL, off: int, pushed: int, blocked: int, short: int
) -> None:
    rule.after.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    assert rule.after(off, pushed, blocked) == short
