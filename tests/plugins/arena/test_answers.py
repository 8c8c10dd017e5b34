"""What models say: their thoughts are no decision, and of drafts and calls one after the other the right one counts."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest

from ue_rl.plugins.arena import AgentDecision
from ue_rl.plugins.arena.answers import MAX_ANSWER, without_thoughts

FLEE = '{"tool": "flee", "params": {"speed": 2}}'
DRAFT = '{"tool": "attack", "params": {"target": "fire"}}'
BERRY = '{"name": "Berry", "type": "food"}'

FLEES = {
    "a block": f"<think>I see {BERRY}, or {DRAFT}</think>{FLEE}",
    "a block of lines": f'<think>\n{{"draft": true}}\n</think>\n\n```json\n{FLEE}\n```',
    "an end tag alone": f"I see {BERRY} and could {DRAFT}\n</think>\n{FLEE}",
    "an end tag alone behind an object without a tool": f'{{"draft": true}}</think>{FLEE}',
    "two blocks": f"<think>{DRAFT}</think> hm <think>{BERRY}</think>{FLEE}",
    "a block within a block": f"<think>a<think>{DRAFT}</think>{DRAFT}</think>{FLEE}",
    "a block behind it": f"{FLEE}<think>or was it {DRAFT}?</think>",
    "an unfinished block behind it": f"{FLEE}<think>or was it {DRAFT}",
    "other words": f"<Thinking type='deep'>{DRAFT}</Thinking><reflection>{DRAFT}</reflection>{FLEE}",
    "a namespace": f"<seed:think>{DRAFT}</seed:think>{FLEE}",
    "brackets": f"[THINK]{DRAFT}[/THINK]{FLEE}",
    "channels": f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>{FLEE}",
    "tokens": f"<|START_THINKING|>{DRAFT}<|END_THINKING|><|START_ACTION|>[{FLEE}]<|END_ACTION|>",
    "a token": f"<|think|>{DRAFT}<|/think|>{FLEE}",
    "other tags": f"◁think▷{DRAFT}◁/think▷{FLEE}",
    "broken drafts": f'<think>{{"tool": "attack", "params": {{ no, {{{{ rather</think>{FLEE}',
    "thoughts longer than what is read": f"<think>{DRAFT * 5000}</think>{FLEE}",
    "THINKING and ACTION": f"THINKING: I see {BERRY}, not {DRAFT}\nACTION: {FLEE}",
    "THINKING and ACTION on one line": f"THINKING: I see {BERRY}, not {DRAFT} ACTION: {FLEE}",
    "ACTION is talked of": f"THINKING: I could say ACTION: {DRAFT}, but no.\nACTION: {FLEE}",
    "ACTION is talked of on one line": f"THINKING: I could say ACTION: {DRAFT}, but no. ACTION: {FLEE}",
    "ACTION in Markdown": f"**Thought:** {DRAFT}\n**Action:**\n```json\n{FLEE}\n```",
    "turns that did not happen": f"THINKING: run. ACTION: {FLEE}\nTHINKING: now ACTION: {DRAFT}",
    "turns that did not happen, by lines": f"Thought: run\nAction: {FLEE}\nObservation: ok\nAction: {DRAFT}",
    "a block and ACTION": f"<think>ACTION: {DRAFT}</think>THINKING: {BERRY} ACTION: {FLEE}",
    "alone": FLEE,
    "a list": f"[{FLEE}, {DRAFT}]",
    "two calls": f"{FLEE}\n{DRAFT}",
    "two calls in code blocks": f"I run, then hit:\n```json\n{FLEE}\n```\n```json\n{DRAFT}\n```",
    "two calls in tags": f"<tool_call>{FLEE}</tool_call>\n<tool_call>\n{DRAFT}\n</tool_call>",
    "a draft in prose": f"Perhaps {DRAFT}? No, I take {FLEE}.",
    "a draft in prose, the answer in a code block": f"Not {DRAFT}:\n```json\n{FLEE}\n```\nnor {DRAFT}",
    "what it did not take, behind it": f"{FLEE}\nI did not take {DRAFT}, because it burns.",
    "things that it sees": f"I see {BERRY} and {{so}} on. {FLEE}",
    "an object without a tool before it": f'{{"plan": "run"}} {FLEE}',
    "a text with tags": f'{{"thought": "say </think> or <think>", {FLEE[1:]}',
    "a text with ACTION": f'{{"thought": "ACTION: {{x", {FLEE[1:]}',
    "a line end in a text": f'{{"thought": "one\ntwo", {FLEE[1:]}',
    "spellings of a call": '{"tool_calls": [{"function": {"name": "flee", "arguments": "{\\"speed\\": 2}"}}]}',
    "an object as the tool": '{"tool": {"name": "flee", "arguments": {"speed": 2}}}',
    "other words for the parameters": '{"tool": "flee", "args": {"speed": 2}}',
    "as ReAct has them": '{"action": "flee", "action_input": {"speed": 2}}',
    "as Anthropic has them": '{"type": "tool_use", "name": "flee", "input": {"speed": 2}}',
    "an answer within": f'{{"response": {FLEE}}}',
    "a final answer within": f'{{"thoughts": "hot", "final_answer": {FLEE}}}',
    "something broken behind it": f"{FLEE} and not {{'tool': 'attack'}}",
    "prose in braces behind it": f"I take {FLEE} from {{x: 5, y: 3}}",
    "a broken draft before it": f'{{"tool": "attack", "params": {{"target": "fire"}},}} No, rather {FLEE}',
    "a decision within": f'{{"reasoning": "hot", "decision": {FLEE}}}',
}
IDLE = ['{"reasoning": "wait"}', "<think>a</think>{}", '{"tool": null}', f'<think>{DRAFT}</think>{{"thought": "wait"}}']
NOTHING = {
    f"<think>I could {DRAFT}": "ends within its thoughts",
    f"Well. <think>I could {DRAFT}": "ends within its thoughts",
    f"<think>I could {DRAFT}</think>": "no JSON object",
    f"<think>I could {DRAFT}</think>I wait.": "no JSON object",
    f"{DRAFT}</think>": "no JSON object",
    f"THINKING: {DRAFT} ACTION: none": "no JSON object",
    '<think>a</think>{"tool": "plan", "params": {"then": {"tool": "attack", "params": {}}': "breaks off",
    '{"tool": "flee", "params": {"speed": 2},}': "the JSON object is broken",
    "{'tool': 'flee', 'params': {\"speed\": 2}}": "the JSON object is broken",
    '{"tool": "flee", // away\n"params": {"speed": 2}}': "the JSON object is broken",
    '{"tool": "flee", "reasoning": "it is "hot" here", "params": {"speed": 2}}': "the JSON object is broken",
    '{tool: "flee", params: {"speed": 2}}': "the JSON object is broken",
    f'{{"tool": "flee", "instead_of": {DRAFT},}}': "the JSON object is broken",
    f'Perhaps {DRAFT}? No, I take {{"tool": "flee", "params": ': "breaks off, behind another one",
    f"Perhaps {DRAFT}? No, I take {{'tool': 'flee', 'params': {{}}}}": "is broken, behind another one",
    'flee({"speed": 2})': "names no tool",
    '<function=flee>{"speed": 2}</function>': "names no tool",
    'Thought: run\nAction: flee\nAction Input: {"speed": 2}': "names no tool",
    'I take {"tool": "say", "params": {"text": "{\\"tool\\": \\"attack\\"} and': "breaks off",
}


@pytest.mark.parametrize("name", FLEES)
def test_what_counts_in_an_answer(name: str) -> None:
    said = AgentDecision.from_llm_response(FLEES[name])
    assert (said.tool, said.params) == ("flee", {"speed": 2})
    assert len(said.reasoning) <= 2000


@pytest.mark.parametrize("text", IDLE)
def test_an_object_without_a_tool_is_idle(text: str) -> None:
    assert AgentDecision.from_llm_response(text).tool == "idle"


@pytest.mark.parametrize("text", NOTHING)
def test_an_answer_without_a_decision_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=NOTHING[text]):
        AgentDecision.from_llm_response(text)


def test_thoughts_are_the_reasoning_where_there_is_no_other() -> None:
    assert AgentDecision.from_llm_response(f"<think>it is hot</think>{FLEE}").reasoning == "it is hot"
    told = json.dumps({**json.loads(FLEE), "reasoning": "hot"})
    assert AgentDecision.from_llm_response(f"<think>is it?</think>{told}").reasoning == "hot"


def test_a_plan_or_a_summary_has_no_thoughts() -> None:
    assert without_thoughts("<think>what?\n</think>\nWin\n1. eat") == "Win\n1. eat"
    assert without_thoughts("what?</think>Win. ACTION: eat") == "Win. ACTION: eat"
    assert without_thoughts("Win") == "Win"
    with pytest.raises(ValueError, match="ends within its thoughts"):
        without_thoughts("<think>what")


@pytest.mark.parametrize(
    "text",
    ["{" * MAX_ANSWER, '{"a":' * 20_000, "<think>" * 20_000, "</think>" * 20_000, "\n" * 300_000, "ACTION: {" * 10_000,
     "<think " * 50_000, '{"' * 50_000, "[" * MAX_ANSWER, '{"a": "</think>"} ' * 5000, '{"name": "x"}, ' * 7000,
     "{x: " * 8000, "{x: " * 4000 + "}" * 4000],
)  # fmt: skip
def test_what_is_written_without_end_takes_no_time(text: str, slack: Any) -> None:
    began = time.perf_counter()
    with contextlib.suppress(ValueError):
        AgentDecision.from_llm_response(text)
    assert time.perf_counter() - began < 2 * slack
