"""What a model says: its thoughts are taken off, and the call is found in what is left. Nothing it thinks is done.

A model that reasons writes its thoughts first, in a block of tags; some services keep the tag that begins it, so that
an answer has the end tag alone. Where the tokens are used up within the thoughts, there is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ue_rl.system.errors import shorten

MAX_ANSWER = 100_000  # characters of an answer, without its thoughts, that are read
MAX_TRIES = 1000  # braces at which an object may begin; prose, and what a game wrote, may be full of them
SPELLINGS = {  # of an object's keys: the last one that is there wins: the proper name
    "tool": ("name", "tool_name", "action", "tool"),
    "params": ("arguments", "parameters", "params"),
    "reasoning": ("explanation", "thought", "reasoning"),
}
# Other words for the parameters, where they stand beside a tool's name; a tool may have parameters of these names.
LOOSE = ("args", "input", "action_input", "tool_input")
_HOLDERS = (  # keys of an object, or of a list of objects, that holds the call
    "action", "tool", "tool_call", "function_call", "function", "decision", "tool_calls", "actions", "calls",
    "response", "answer", "final_answer", "final_action", "next_action", "output",
)  # fmt: skip
_WORD = r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis)"
_LOUD = r"(?-i:THINK|THINKING|REASONING)"  # in brackets words of other letters are prose
_MARKS = re.compile(
    rf"(?P<open><(?:\w+:)?{_WORD}(?:\s[^<>]*)?>|\[{_LOUD}\]|◁think▷|<\|begin_of_thought\|>|<\|(?:START_THINKING|think)\|>|<\|channel\|>\s*analysis\b)"
    rf"|(?P<close></(?:\w+:)?{_WORD}\s*>|\[/{_LOUD}\]|◁/think▷|<\|end_of_thought\|>|<\|(?:END_THINKING|/think)\|>"
    r"|<\|channel\|>\s*(?:final|commentary)\b)"
    r"|(?P<line>^[ \t*_#>-]*\bACTION\b[ \t*_]*:)"  # at the begin of a line, however it is written
    r"|(?P<within>\b(?-i:ACTION)\b[ \t*_]*:)",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT_TURN = re.compile(r"\b(?:THINKING|THOUGHT|OBSERVATION)[ \t*_]*:", re.IGNORECASE)
_BETWEEN_CALLS = re.compile(r"(?:[\s,;\[\]`]|json\b|</?tool_calls?>|<\|[^|<>]*\|>)*", re.IGNORECASE)
_NO_PROSE = re.compile(r"(?:[\s\[`]|json\b|<tool_calls?>|<\|[^|<>]*\|>|(?:assistant|final)\b|\bJSON:)*", re.IGNORECASE)
_CALLED = re.compile(
    r"(?:\w\(|<function=[^<>]*>|\[ARGS\]|\bACTION INPUT[ \t*_]*:)\s*(?:```(?:json)?\s*)?$", re.IGNORECASE
)
_KEY = re.compile(r"""\{\s*["'“”]?\w+["'“”]?\s*:""")
_NAMES_TOOL = re.compile(r"""\b(?:tool|tool_name|action)["'“”]?\s*:""")
_BRACE = re.compile(r"[{}]")
_FENCE = re.compile(r"```")
_DECODER = json.JSONDecoder(strict=False)  # models write line ends within texts


class Said(NamedTuple):
    """What a model decided.

    Attributes:
        call: an object; of its keys those of SPELLINGS count. before: what it thought, and wrote before the object.
    """

    call: dict[str, Any]
    before: str


class _Found(NamedTuple):
    """An object and where it stands."""

    value: dict[str, Any]
    begin: int
    end: int


def call_in(text: str) -> Said:
    """The call in a model's answer, an object without a tool where it says nothing to do.

    Thoughts are left out: blocks of <think> and the like, all that stands before an end tag alone, and before ACTION:.
    Of what is left an object that holds a tool counts, alone, in a code block or within prose. Of several, without
    prose between them, the first counts: calls one after the other. With prose between them it is the first where the
    answer begins with it, else the last in a code block, else the last of all: what came before were drafts.

    Raises:
        ValueError: no such object is in it, it is broken or breaks off in the middle, the thoughts do, or what was
            called stands outside of the object.
    """
    parts = _apart(text)
    answer = parts.answer[:MAX_ANSWER]
    objects = _objects(answer)
    calls = [each for each in objects.found if _is_call(each.value)]
    if not calls and not objects.broken:
        calls = [each for each in objects.found if "name" in each.value] or objects.found[:1]
        if (
            calls
            and not _flat(calls[0].value).keys() & {*SPELLINGS["tool"]}
            and _CALLED.search(answer[: calls[0].begin])
        ):
            raise ValueError(f"the object names no tool, expected {_FORM}, in the model's answer {shorten(answer)!r}")
    if not calls:
        if parts.unfinished:
            raise ValueError(_UNFINISHED)
        what = "no JSON object with a tool is"
        if objects.broken:
            what = objects.broken[-1].how
        raise ValueError(f"{what} in the model's answer {shorten(answer)!r}")
    chosen = _chosen(calls, answer)
    if not _NO_PROSE.fullmatch(answer, 0, chosen.begin):  # then what comes behind it may be what it has decided
        fenced = _in_fence(chosen.begin, answer)
        for broken in objects.broken:
            names = _NAMES_TOOL.search(answer, broken.begin, broken.end)
            if names and broken.begin > chosen.end and (not fenced or _in_fence(broken.begin, answer)):
                raise ValueError(f"{broken.how}, behind another one, in the model's answer {shorten(answer)!r}")
    return Said(_flat(chosen.value), f"{parts.thoughts}\n{answer[: chosen.begin]}")


def without_thoughts(text: str) -> str:
    """What a model says after its thoughts: a plan, a summary.

    Raises:
        ValueError: it says nothing, because it was cut off within its thoughts.
    """
    parts = _apart(text, actions=False)
    said = parts.answer.strip()
    if parts.unfinished and not said:
        raise ValueError(_UNFINISHED)
    return said


_FORM = '{"tool": NAME, "params": {..}}'
_UNFINISHED = "the model's answer ends within its thoughts: let it write more (max_tokens)"


class _Broken(NamedTuple):
    """Where something stands that looks like an object and is none, and how it is wrong."""

    begin: int
    end: int
    how: str


class _Objects(NamedTuple):
    """The objects in a text, none within another, and what looks like one."""

    found: list[_Found]
    broken: list[_Broken]


class _Parts(NamedTuple):
    """Of what a model says; `unfinished`: it ends within the thoughts."""

    thoughts: str
    answer: str
    unfinished: bool


def _apart(text: str, actions: bool = True) -> _Parts:
    """Thoughts and answer.

    Args:
        actions: what stands before ACTION: are thoughts, too.
    """
    thoughts: list[str] = []
    answer: list[str] = []
    begin = 0
    tries = MAX_TRIES
    # acted: how the last ACTION: was written
    thinks = False
    acted = ""
    for mark in _MARKS.finditer(text):
        kind = str(mark.lastgroup)
        acts = kind in ("line", "within")
        if mark.start() < begin or (acts and (thinks or not actions or acted == "line")):
            continue  # it stands within a text of an object, or within the thoughts, or in a turn that did not happen
        if not thinks:
            over, tries = _reaches_over(text, begin, mark.start(), tries)
            if over:  # a text of an object holds it
                answer.append(text[begin:over])
                begin = over
                continue
        piece = text[begin : mark.start()]
        if acts and acted and _NEXT_TURN.search(piece):  # a model that goes on to talk with itself
            acted = "line"
            continue
        if kind == "open":
            if thinks:
                into = thoughts
            else:
                into = answer
            into.append(piece)
            thinks = True
        elif thinks and not acts:
            thoughts.append(piece)
            thinks = False
        else:  # an end tag alone, or ACTION:
            thoughts += [*answer, piece]
            answer.clear()
            acted = ""
            if acts:
                acted = kind
        begin = mark.end()
    (thoughts if thinks else answer).append(text[begin:])
    return _Parts("".join(thoughts), "".join(answer), thinks)


def _reaches_over(text: str, begin: int, place: int, tries: int) -> tuple[int, int]:
    """(end of the object that begins in text[begin:place] and reaches over `place`, or 0; tries that are left)."""
    at = text.find("{", begin, place)
    while at >= 0 and tries:
        tries -= 1
        end = _decoded(text, at)[1]
        if end > place:
            return end, tries
        at = text.find("{", max(end, at + 1), place)
    return 0, tries


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """(what begins at `at`, its end); (None, 0): it is no JSON; (None, -1): it is, and is cut off."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        cut_off = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
        status = 0
        if cut_off:
            status = -1
        return None, status
    except RecursionError:
        return None, 0


def _objects(text: str) -> _Objects:
    """What is in a text; nothing within a broken object counts: it may be a part of it."""
    found: list[_Found] = []
    broken: list[_Broken] = []
    ends: dict[int, int] | None = None
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        value, end = _decoded(text, at)
        if isinstance(value, dict):
            found.append(_Found(value, at, end))
        elif end < 0:
            broken.append(_Broken(at, len(text), "the JSON object breaks off"))
            break
        elif _KEY.match(text, at):
            if ends is None:
                ends = _closing(text)
            end = ends.get(at, 0)
            if end:
                broken.append(_Broken(at, end, "the JSON object is broken"))
        at = text.find("{", max(end, at + 1))
    return _Objects(found, broken)


def _closing(text: str) -> dict[int, int]:
    """Where the brace stands that closes one, of those that are closed; braces in texts count, too."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closed[opened.pop()] = brace.end()
    return closed


def _is_call(value: Mapping[str, Any]) -> bool:
    """Does it name a tool beyond doubt? What has a name alone may be a thing that the model sees."""
    flat = _flat(value)
    if any(key in flat for key in ("tool", "tool_name", "action")):
        return True
    return "name" in flat and any(key in flat for key in (*SPELLINGS["params"], *LOOSE))


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object with its call at the top: {"thought": .., "action": {"tool": ..}}, {"tool_calls": [{..}]}."""
    flat = dict(value)
    for _ in range(3):  # {"tool_calls": [{"function": {"name": ..}}]}
        inner = next((key for key in _HOLDERS if _held(flat.get(key)) is not None), None)
        if inner is None:
            break
        flat |= _held(flat.pop(inner)) or {}
    return flat


def _held(value: Any) -> dict[str, Any] | None:
    """The object that holds the call, or the first of a list of such objects; None: it holds none."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict) and not value.keys().isdisjoint((*SPELLINGS["tool"], *_HOLDERS)):
        return value
    return None


def _chosen(calls: list[_Found], text: str) -> _Found:
    """See `call_in`."""
    if len(calls) == 1 or _NO_PROSE.fullmatch(text, 0, calls[0].begin):
        return calls[0]
    fenced = [call for call in calls if _in_fence(call.begin, text)]
    found_calls = fenced
    if not found_calls:
        found_calls = calls
    return [*_heads(found_calls, text)][-1]


def _in_fence(place: int, text: str) -> bool:
    """Does it stand in a code block?"""
    return len(_FENCE.findall(text, 0, place)) % 2 == 1


def _heads(calls: Iterable[_Found], text: str) -> Iterator[_Found]:
    """The first of each run of calls that have no prose between them."""
    end = None
    for call in calls:
        if end is None or not _BETWEEN_CALLS.fullmatch(text, end, call.begin):
            yield call
        end = call.end
