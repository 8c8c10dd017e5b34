"""@tool: says that a method or a function is a tool. It stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "_ue_rl_tool"


class Mark(NamedTuple):
    """What `@tool` was told; None: as the function itself says."""

    name: str | None = None
    description: str | None = None


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[_Function], _Function]: ...
def tool(function: Any = None, /, *, name: str | None = None, description: str | None = None) -> Any:
    """Marks a method as a tool: `@tool`, or `@tool(name="attack")`.

    Its parameters need types; they become the JSON schema. The first paragraph of its docstring is the description,
    and what stands under "Args:" describes the parameters.

    Args:
        name: None: that of the function. description: None: from its docstring.
    """
    mark = Mark(name, description)

    def marked(target: _Function) -> _Function:
        setattr(target, _MARK, mark)
        return target

    if function is None:
        return marked
    return marked(function)


def marked_methods(owner: object) -> dict[str, tuple[Callable[..., Any], Mark]]:
    """The bound methods of `owner` that are marked, by attribute, base classes first, each in the order of its file."""
    found: dict[str, tuple[Callable[..., Any], Mark]] = {}
    for kind in reversed(type(owner).__mro__):
        for attribute, value in vars(kind).items():
            mark = getattr(value, _MARK, None)
            if isinstance(mark, Mark):
                found[attribute] = getattr(owner, attribute), mark
    return found
