"""JSON values that nobody can change: what a frozen case set says of itself is shared by all who hold it."""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

Value = TypeVar("Value")


class FrozenDict(dict[str, Value]):
    """A dictionary that refuses changes.

    It stays a `dict`, so that `json` writes it and comparisons hold, and it survives pickling and copying, which
    `types.MappingProxyType` does not. `dict(...)` makes a copy that can be changed.
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a frozen mapping cannot be changed: change a copy, dict(mapping)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __deepcopy__(self, memo: Any) -> "FrozenDict[Value]":
        return self  # nothing in it can change


def frozen(value: Any) -> Any:
    """A JSON value with read-only objects and tuples for lists, at every level."""
    if isinstance(value, Mapping):
        return FrozenDict({name: frozen(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return value
