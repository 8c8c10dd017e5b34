"""check(url): runs the checks over every carrier that an engine offers, and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any

from ue_rl.connections.dialling import SchemeHandler, address_of, carriers, handler_of, open_transport
from ue_rl.devtools.check.bench import MEMORY, PER_ENV, Bench, Options
from ue_rl.devtools.check.checks import CHECKS, Check
from ue_rl.devtools.check.peer import SILENT, Skip, Wrong
from ue_rl.devtools.check.report import CheckReport, Finding, Verdict
from ue_rl.devtools.check.wire import Place
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.protocol.spec import Channel
from ue_rl.system.errors import ConfigurationError

__all__ = ["Options", "check"]

Progress = Callable[[Finding], None]
# There is nothing more to check then.
_GONE = ("not-listening", "no-handshake", "busy", "serves-once", "dies-of-disconnect", "dies-of-garbage")
_MOST_LOSSES = 4  # of sessions, without a reason that has a name of its own
_LOOPBACK = ("127.", "localhost", "::1")
_MEMORY_ALONE = "shm"  # the scheme of engines that speak no text
_OWN = {"timeout", "nul_terminated", "token_file"}  # options of an address that say how it is checked


@dataclass
class _Run:
    """Of all carriers."""

    url: str
    options: Options
    report: CheckReport
    progress: Progress | None
    checks: list[Check]
    shared: dict[str, Any] = field(default_factory=dict)


def check(
    url: str, options: Options | None = None, *, progress: Progress | None = None, only: Collection[str] = ()
) -> CheckReport:
    """Connects to an engine again and again, and says what it does wrong.

    Args:
        url: tcp://HOST:PORT, or shm://NAME for an engine that serves shared memory alone, or an address of a carrier
            through which text goes, such as page://HOST:PORT. Of the options behind it timeout, nul-terminated and
            token-file count, instead of those of `options`; and the carrier's own.
        options: see Options. progress: called with each finding, as soon as it is there.
        only: names of checks (ue_rl/devtools/check/checks); they run, and those that all others need. None: all run.

    Raises:
        ConfigurationError: not such a URL, an option in it that names a carrier, or no such check.
        AccessRefused: the engine asks for a token that is not given, or a wrong one, or its port speaks TLS.
    """
    address = address_of(url)
    began = time.perf_counter()
    handler = handler_of(address.scheme)
    if not _speaks_text(handler) and address.scheme != _MEMORY_ALONE:
        expected = " or ".join(
            each.scheme.form for name, each in carriers().items() if _speaks_text(each) or name == _MEMORY_ALONE
        )
        raise ConfigurationError("what is checked is plain text", field="url", expected=expected, got=url)
    further = {key: value for key, value in address.options.items() if key not in _OWN}
    if not handler.text_through and (unused := sorted(further)):
        raise ConfigurationError(
            "every carrier of an engine is checked, and it is dialled again and again",
            field=f"url, {unused[0]}",
            expected="no options but timeout, nul-terminated and token-file",
            got=url,
            cure="leave it out",
        )
    chosen = options or Options()
    options = replace(chosen, **{key: value for key, value in address.options.items() if key in _OWN})
    if unknown := sorted(set(only) - {each.name for each in CHECKS}):
        raise ConfigurationError("no such check", field="only", got=unknown[0])
    checks = [each for each in CHECKS if not only or each.fundamental or each.name in only]
    run = _Run(address.url, options, CheckReport(address.url), progress, checks)
    if not _speaks_text(handler):
        dial = partial(open_transport, address.url, timeout=options.timeout)
        _carrier(run, Bench(Place("", 0), options, MEMORY, dial=dial, shared=run.shared), checks)
    else:
        access = ClientAccess.of(options.token_file)
        with _text_of(handler, address.place, access, further) as (host, port):
            _text(run, Place(host, port, access))
    run.report.seconds = time.perf_counter() - began
    return run.report


def _speaks_text(handler: SchemeHandler) -> bool:
    return handler.text_at is not None or bool(handler.text_through)


def _text_of(
    handler: SchemeHandler, place: str, access: ClientAccess | None, further: Mapping[str, Any]
) -> AbstractContextManager[tuple[str, int]]:
    """The socket's address on which a place speaks plain text, as long as the block runs."""
    if handler.text_at is not None:
        return nullcontext(handler.text_at(place))
    token = None
    if access is not None:
        token = access.token
    context: AbstractContextManager[tuple[str, int]] = resolve_name(handler.text_through)(place, token=token, **further)
    return context


def _text(run: _Run, address: Place) -> None:
    # The first session is the one that is checked: an engine may serve no second one.
    bench = Bench(address, run.options, "")
    bench.check = "handshake"
    try:
        peer = bench.text()
    except Wrong as wrong:
        bench.fail(wrong.mistake, wrong.text, wrong.seen)
        _take(run, bench)
        return
    spec = peer.spec
    run.report.handshake = peer.handshake.decode("ascii", "backslashreplace").strip()
    bench.passes(f"came after {peer.greeted * 1e3:.1f} ms: {run.report.handshake}")
    _take(run, bench)
    checks = run.checks
    gone = ""
    if spec.image is None:
        gone = _carrier(run, Bench(address, run.options, peer.carrier, peer=peer, shared=run.shared), checks)
        checks = [each for each in run.checks if each.every_carrier]
        if spec.channel is Channel.ANY and not spec.groups:
            gone = _carrier(run, Bench(address, run.options, PER_ENV, again=True, shared=run.shared), checks, gone)
    peer.close()
    if spec.shm is not None and address[0].startswith(_LOOPBACK):
        token = run.options.token_file
        dial = partial(open_transport, run.url, "shm", timeout=run.options.timeout, token_file=token)
        _carrier(run, Bench(address, run.options, MEMORY, dial=dial, shared=run.shared), checks, gone)


def _carrier(run: _Run, bench: Bench, checks: list[Check], gone: str = "") -> str:
    """Runs the checks over one carrier; `gone` as it is then.

    Args:
        gone: why the engine serves nobody any more; "": it does.
    """
    broken = gone
    if gone:
        bench.check = "session"
        bench.skips(f"the engine serves no further session: {gone}")
        _take(run, bench)
        return gone
    if bench.carrier == MEMORY:
        checks = [each for each in checks if not each.text_only]
        if not _attached(run, bench):
            return ""
    for each in checks:
        bench.check = each.name
        before = len(bench.findings)
        if broken:
            bench.skips(f"it needs what failed above: {broken}")
        else:
            broken = _one(bench, each) or broken
        if each.fundamental and any(f.outcome is Verdict.FAIL for f in bench.findings[before:]):
            broken = broken or each.name
        _take(run, bench)
    bench.drop()
    if broken in _GONE:
        return broken
    return ""


def _attached(run: _Run, bench: Bench) -> bool:
    """Can shared memory be used?"""
    bench.check = "shared memory"
    try:
        bench.peer()
    except Wrong as wrong:
        in_text = any(found.carrier for found in run.report.findings)  # a trainer goes on so
        if in_text:
            report = bench.warn
        else:
            report = bench.fail
        report(wrong.mistake, wrong.text, wrong.seen)
        _take(run, bench)
        return False
    return True


def _one(bench: Bench, each: Check) -> str:
    """Runs a check; the name of what makes the checks behind it pointless, "" for nothing."""
    before = len(bench.findings)
    try:
        text = each.run(bench)
        if len(bench.findings) == before:
            bench.passes(text)
    except Skip as reason:
        if len(bench.findings) == before:
            bench.skips(str(reason))
    except Wrong as wrong:
        bench.drop()
        bench.fail(wrong.mistake, wrong.text, wrong.seen, wrong.env_id)
        bench.fell_silent = bench.fell_silent or wrong.mistake in SILENT
        if wrong.mistake in _GONE:
            return wrong.mistake
        if wrong.mistake in (*SILENT, "ends-session"):
            bench.losses += 1
            if bench.losses == _MOST_LOSSES:
                return f"{wrong.mistake}, the {_MOST_LOSSES}th time that the session was lost"
    return ""


def _take(run: _Run, bench: Bench) -> None:
    """Moves what the bench has found into the report; a mistake that was found over another carrier is told once."""
    told: dict[str, Finding] = run.shared.setdefault("told", {})
    for finding in bench.findings:
        if finding.mistake is not None:
            first = told.setdefault(finding.mistake.name, finding)
            if first.carrier != finding.carrier and first.outcome in (finding.outcome, Verdict.FAIL):
                text = f"{finding.mistake.name}, as over {first.carrier}"
                finding = Finding(finding.check, finding.carrier, Verdict.SKIP, text)  # noqa: PLW2901
        run.report.findings.append(finding)
        if run.progress is not None:
            run.progress(finding)
    bench.findings.clear()
    if bench.speed:
        run.report.speed[bench.carrier] = bench.speed
