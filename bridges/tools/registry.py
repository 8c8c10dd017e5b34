"""ToolRegistry: tools by name, with JSON schemas, and arguments that are checked before anything is called."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.tools.marking import marked_methods
from ue_rl.system.errors import ConfigurationError, ToolError, nearest, shorten
from ue_rl.system.json_values import NotJson, json_value
from ue_rl.system.lazy import named_if_missing

if TYPE_CHECKING:
    from pydantic import BaseModel

_NAMED = 5  # wrong arguments that an error names
_ENTRY = re.compile(r"\s*(\w+)\s*(?:\([^)]*\))?:\s*(.+)")


@dataclass(frozen=True)
class ToolSchema:
    """What a caller must know of a tool.

    Attributes:
        name: as it is called. description: for minds that read.
        parameters: the JSON schema of its arguments: an object that takes no others.
    """

    name: str
    description: str
    parameters: dict[str, Any]

    def as_dict(self, key: str = "inputSchema") -> dict[str, Any]:
        """For JSON: name, description and, under `key`, the schema."""
        return {"name": self.name, "description": self.description, key: self.parameters}


class _Tool:
    """One tool: its function, which of the hidden parameters that takes, and the model of the others."""

    def __init__(
        self, name: str, function: Callable[..., Any], description: str | None, hidden: frozenset[str]
    ) -> None:
        self.function = function
        self.model = _model(getattr(function, "__func__", function), hidden)
        self.hidden = hidden & inspect.signature(function).parameters.keys()
        schema = self.model.model_json_schema()
        schema.pop("title", None)
        for about in schema.get("properties", {}).values():
            about.pop("title", None)
        text = inspect.getdoc(function) or ""
        self.schema = ToolSchema(name, description or _first_paragraph(text), {"properties": {}, **schema})


class ToolRegistry:
    """Tools by name.

    Args:
        hidden: parameters that a caller does not give, such as the env id: `call` fills them in from its context.

    Raises:
        MissingPackage: by what adds a tool: the package pydantic is not installed.
    """

    def __init__(self, hidden: Collection[str] = ("env_id",)) -> None:
        self._hidden = frozenset(hidden)
        self._tools: dict[str, _Tool] = {}

    @classmethod
    def of(cls, owner: object, hidden: Collection[str] = ("env_id",)) -> ToolRegistry:
        """The methods of `owner` that are marked with @tool.

        Raises:
            ConfigurationError: see `add`.
        """
        registry = cls(hidden)
        for method, mark in marked_methods(owner).values():
            registry.add(method, mark.name, mark.description)
        return registry

    def add(self, function: Callable[..., Any], name: str | None = None, description: str | None = None) -> None:
        """Adds a tool.

        Args:
            function: typed. name: None: its own. description: None: the first paragraph of its docstring.

        Raises:
            ConfigurationError: there is a tool of this name, or a parameter has no type, or is one of *args, **kwargs.
        """
        name = name or function.__name__
        if name in self._tools:
            raise ConfigurationError("there are two tools of one name", field="tool", got=name)
        self._tools[name] = _Tool(name, function, description, self._hidden)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tools, in the order in which they were added."""
        return tuple(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def schemas(self) -> list[ToolSchema]:
        """Of all tools."""
        return [tool.schema for tool in self._tools.values()]

    def json(self, key: str = "inputSchema") -> str:
        """A list of all of them, see ToolSchema.as_dict."""
        return json.dumps([schema.as_dict(key) for schema in self.schemas()])

    def validate(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them: of the declared types, with the defaults of what was not given.

        Raises:
            ToolError: TOOL_NOT_FOUND, or INVALID_PARAMETERS, which names each wrong one.
        """
        from pydantic import ValidationError

        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(
                f"there is no tool {name!r}",
                tool=name,
                code="TOOL_NOT_FOUND",
                field="tool",
                expected=", ".join(self._tools) or "none: there are no tools",
                cure=nearest(name, self._tools),
            )
        try:
            values = tool.model.model_validate(dict(arguments))
        except ValidationError as error:
            found = [f"{shorten('.'.join(map(str, each['loc'])))}: {each['msg']}" for each in error.errors()]
            wrong = "; ".join(found[:_NAMED]) + (f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
            raise ToolError(
                f"invalid parameters for the tool {name!r}: {wrong}",
                tool=name,
                code="INVALID_PARAMETERS",
                field="arguments",
                expected=", ".join(tool.model.model_fields) or "no arguments",
                got=dict(arguments),
            ) from error
        return {field: getattr(values, field) for field in tool.model.model_fields}

    def call(self, name: str, arguments: Mapping[str, Any], **context: Any) -> Any:
        """Checks the arguments and calls the tool; what it returns.

        Args:
            context: values of hidden parameters; those that the function does not take are left out.

        Raises:
            ToolError: as `validate`, or TOOL_EXECUTION_FAILED: the function raised, which is the error's cause.
        """
        values = self.validate(name, arguments)
        tool = self._tools[name]
        try:
            return tool.function(**values, **{key: context[key] for key in tool.hidden})
        except ToolError:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(name, error) from error

    def answer(self, name: str, arguments: Mapping[str, Any], **context: Any) -> Any:
        """As `call`; what the tool returns in JSON's types, for a mind that is somewhere else.

        Enum members, dataclasses, pydantic's models, sets, dates, paths, bytes, NumPy's numbers and arrays and more
        are converted (ue_rl/system/json_values.py has the table). NaN and infinity are not JSON.

        Args:
            context: as of `call`.

        Raises:
            ToolError: as `call`. Also TOOL_EXECUTION_FAILED where JSON cannot hold what the tool returned: the message
                names the tool, the type or number, and where it stands. The tool has done its work then.
        """
        said = self.call(name, arguments, **context)
        try:
            return json_value(said)
        except NotJson as error:
            raise ToolError(
                f"the tool {name!r} was called, but its result cannot be sent as JSON: {error}",
                tool=name,
                code="TOOL_EXECUTION_FAILED",
                fault="engine",
                cure="let it return texts, finite numbers, lists, dicts, dataclasses or NumPy arrays of these",
            ) from None
        except (Exception, SystemExit) as error:  # of an iterator or a property of what it returned
            raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> ToolError:
    what = f"the tool {name!r} failed: {type(error).__name__}: {error}"
    return ToolError(what, tool=name, code="TOOL_EXECUTION_FAILED", fault="engine")


@lru_cache(1024)
def _model(function: Callable[..., Any], hidden: frozenset[str]) -> type[BaseModel]:
    """A model of the parameters of `function` that are not hidden; kept, because each bridge of a class asks for it."""
    with named_if_missing("@tool"):
        from pydantic import ConfigDict, Field, create_model

    types = typing.get_type_hints(function, include_extras=True)
    text = inspect.getdoc(function) or ""
    about = _described(text)
    fields: dict[str, Any] = {}
    for place, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if name in hidden or (place == 0 and name == "self"):
            continue
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if name not in types or not named or name.startswith("_"):
            raise ConfigurationError(
                f"a parameter of the tool {function.__name__!r} has no type, or cannot be given by its name",
                field=name,
                expected="a type for each parameter; no *args, no **kwargs, none before a /, none that begins with _",
            )
        default = ...
        if parameter.default is not parameter.empty:
            default = parameter.default
        fields[name] = types[name], Field(default, description=about.get(name))
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _described(text: str) -> dict[str, str]:
    """Parameter -> description, from the section "Args:" of a docstring: "name: text", in one or more lines."""
    found: dict[str, str] = {}
    name = ""
    _, _, section = text.partition("\nArgs:\n")
    for line in section.partition("\n\n")[0].splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry is not None and entry[1]:
            name = entry[1]
            found[name] = entry[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found
