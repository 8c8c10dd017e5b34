"""Each kind of Python's values becomes JSON, or the error says what it is and where."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.json_cases import CONVERTED, REFUSED, breaks, circle, counted, endless
from ue_rl.system.json_values import NotJson, json_value, readable


@pytest.mark.parametrize("number", range(len(CONVERTED)))
def test_what_python_functions_return_is_converted(number: int) -> None:
    value, expected = CONVERTED[number]
    if isinstance(value, Iterator):  # it can be read once
        value = counted() if expected == [1, 2] else map(str, [1])
    found = json_value(value)
    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_json_cannot_hold_is_an_error_that_names_type_and_place(number: int) -> None:
    value, said = REFUSED[number]
    with pytest.raises(NotJson) as failed:
        json_value(value)
    assert said in str(failed.value)


def test_what_is_shown_never_raises_and_has_an_end() -> None:
    assert readable({"a": [float("nan"), 1], "b": endless()}) == "<dict>"
    assert readable([float("nan"), {"a": object}, circle()[:0]]) == ["nan", {"a": "<class 'object'>"}, []]
    assert "[" in str(readable(circle()))
    assert readable(breaks()) == "<generator>"
