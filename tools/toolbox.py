"""A toolbox: named tools with JSON schemas from typed signatures, and results that are JSON either way.

A tool is a method whose parameters carry types (and `Annotated[..., Field(...)]` limits) and whose docstring's first
paragraph tells the agent what it does. The same schema feeds chat prompts and any other front end.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from castgym.data.errors import CastgymError

ToolErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "unknown_series",
    "unknown_model",
    "unaffordable",
    "insufficient_context",
    "horizon_too_short",
    "origin_not_allowed",
    "backend_error",
]
TOOL_ERROR_KINDS: tuple[ToolErrorKind, ...] = get_args(ToolErrorKind)
"""The closed set of faults that a tool reports to the agent."""


class ToolError(CastgymError):
    """A fault that the agent sees as the tool's result.

    Args:
        kind: one of `TOOL_ERROR_KINDS`.
        message: what was expected, what was found.
        details: further JSON for the agent, such as the budget after a charge.
    """

    def __init__(self, kind: ToolErrorKind, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.details = dict(details or {})


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call returned.

    Attributes:
        tool: name that was called.
        arguments: arguments as given.
        content: JSON for the agent; `{"error": kind, "message": ...}` where the call failed.
        error: the fault's kind, `None` on success: one of `TOOL_ERROR_KINDS`, or a fault that an episode found
            before any tool ran.
    """

    tool: str
    arguments: Mapping[str, Any]
    content: Mapping[str, Any]
    error: str | None = None

    @property
    def ok(self) -> bool:
        """The call succeeded."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a tool is, apart from the object that runs it.

    Attributes:
        name: name in calls.
        parameters: model of the arguments; strict types, unknown names refused.
        schema: the OpenAI function format.
    """

    name: str
    parameters: type[BaseModel]
    schema: Mapping[str, Any]


@functools.cache
def tool_spec(method: Callable[..., Mapping[str, Any]]) -> ToolSpec:
    """Describe a typed, documented method, once a process: building schemas costs more than most calls."""
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())[1:]
    fields: dict[str, Any] = {
        item.name: (item.annotation, ... if item.default is inspect.Parameter.empty else item.default)
        for item in parameters
    }
    model = create_model(method.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    paragraph = " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())
    schema = model.model_json_schema()
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    function = {"name": method.__name__, "description": paragraph, "parameters": schema}
    return ToolSpec(method.__name__, model, {"type": "function", "function": function})


class Toolbox:
    """Name -> tool; calls never raise for what the agent did.

    Args:
        owner: the object whose methods are the tools.
        names: names of the methods, in the order in which prompts list them.
        defaults: values of arguments that a call may leave out here.
    """

    def __init__(self, owner: object, names: Sequence[str], defaults: Mapping[str, Any] | None = None) -> None:
        self._owner = owner
        self._defaults = dict(defaults or {})
        self._specs = {name: tool_spec(getattr(type(owner), name)) for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools."""
        return tuple(self._specs)

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Schemas of all tools, OpenAI function format. Shared: do not change them."""
        return tuple(spec.schema for spec in self._specs.values())

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool.

        Args:
            name: tool.
            arguments: JSON object of arguments.

        Returns:
            The result; an unknown tool, bad arguments or a `ToolError` become an error result.
        """
        spec = self._specs.get(name)
        if spec is None:
            known = ", ".join(self._specs)
            return self._fault(name, arguments, "unknown_tool", f"no tool {name[:80]!r}; tools: {known}")
        try:
            known_here = {key: self._defaults[key] for key in self._defaults if key in spec.parameters.model_fields}
            checked = spec.parameters.model_validate({**known_here, **arguments})
        except ValidationError as error:
            return self._fault(name, arguments, "invalid_arguments", _explain(error))
        try:
            given = {field: getattr(checked, field) for field in type(checked).model_fields}
            return ToolResult(name, arguments, getattr(self._owner, name)(**given))
        except ToolError as error:
            return self._fault(name, arguments, error.kind, error.message, error.details)

    @staticmethod
    def _fault(
        name: str,
        arguments: Mapping[str, Any],
        kind: ToolErrorKind,
        message: str,
        details: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        return ToolResult(name, arguments, {"error": kind, "message": message, **(details or {})}, kind)


def _explain(error: ValidationError) -> str:
    """One line a fault: the argument, what was expected, what was found (cut, so that it cannot flood a prompt)."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))[:80] or 'arguments'}: {item['msg']} (found {repr(item['input'])[:80]})"
        for item in error.errors()[:8]
    )
