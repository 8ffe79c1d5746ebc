"""Business contracts as JSON, in generic and in legacy names.

Generic contracts name `scale`, `capacity_grid` (physical units) and `unit`; legacy ones `scale_mw` and
`capacity_grid_mw`, with the unit MW. The terms stand beside these or under `terms`; `grid` is the grid in normalised
units.
"""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from castgym.data.contract import PROTOCOL_GRID, ContractTerms
from castgym.data.errors import DataError

_KNOWN = (*ContractTerms.model_fields, "scale", "scale_mw", "capacity_grid", "capacity_grid_mw", "unit", "terms")

_MOST_FAULTS = 3
"""Faults that a message names."""


class ContractRecord(NamedTuple):
    """A contract that was read.

    Attributes:
        terms: in normalised units.
        scale: physical units.
        unit: physical unit.
    """

    terms: ContractTerms
    scale: float
    unit: str


def contract_from_json(value: Mapping[str, Any]) -> ContractRecord:
    """Read a business contract.

    Without a grid, the protocol's normalised grid holds. Fields of other names are ignored, unless they look like a
    known one with a typing error.

    Raises:
        DataError: a field is missing or invalid, or two names of a field disagree.
    """
    if not isinstance(value, Mapping):
        raise DataError(f"expected a contract as a JSON object, found {type(value).__name__}")
    fields = dict(value)
    nested = fields.pop("terms", {})
    if not isinstance(nested, Mapping):
        raise DataError(f"expected the contract's terms as a JSON object, found {type(nested).__name__}")
    for name, item in nested.items():
        if name in fields and fields[name] != item:
            raise DataError(f"the contract gives {name} twice: {fields[name]!r} and {item!r}")
        fields[name] = item
    for name in fields:
        if name not in _KNOWN and (alike := get_close_matches(name, _KNOWN, 1, 0.9)):
            raise DataError(f"the contract has no field {name!r}: did you mean {alike[0]!r}?")
    scale = _positive(_alias(fields, "scale", "scale_mw"), "scale")
    grid = _alias(fields, "capacity_grid", "capacity_grid_mw")
    legacy = "scale_mw" in fields or "capacity_grid_mw" in fields
    unit = fields.get("unit", "MW" if legacy else None)
    if not isinstance(unit, str | None):
        raise DataError(f"expected the contract's unit as text, found {unit!r}")
    if legacy and unit != "MW":
        raise DataError(f"a contract in scale_mw or capacity_grid_mw has the unit MW, found {unit!r}")
    try:
        if grid is not None:
            physical = _normalised(grid, scale)
            if "grid" in fields and tuple(_numbers(fields["grid"], "grid")) != physical:
                raise DataError("the contract gives both grid and capacity_grid, and they disagree: keep one")
            fields["grid"] = physical
        normalised = {"grid": PROTOCOL_GRID, **fields}
        return ContractRecord(ContractTerms.model_validate(normalised), scale, unit or "MW")
    except ValidationError as error:
        raise DataError(f"invalid contract: {'; '.join(map(_fault, error.errors()[:_MOST_FAULTS]))}") from error


def contract_to_json(terms: ContractTerms, scale: float, unit: str) -> dict[str, Any]:
    """The layout that `contract_from_json` reads, in generic names."""
    grid = [scale * value for value in terms.grid]
    rest = terms.model_dump(mode="json", exclude={"grid"})
    return {"scale": scale, "unit": unit, "capacity_grid": grid, **rest}


def _alias(fields: Mapping[str, Any], name: str, legacy: str) -> Any:
    if name in fields and legacy in fields and fields[name] != fields[legacy]:
        raise DataError(f"the contract gives both {name} and {legacy}, and they disagree: keep one")
    return fields.get(name, fields.get(legacy))


def _fault(item: ErrorDetails) -> str:
    """What pydantic expected of a field, and what it found."""
    message = item["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    message = message.replace("expected a valid tuple", "expected a list of numbers")
    if not item["loc"]:  # a rule between fields
        return message
    found = "" if item["type"] == "missing" else f", found {_shown(item['input'])}"
    return f"{'.'.join(map(str, item['loc']))}: {message}{found}"


def _shown(value: object) -> str:
    """A value for an error message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer or a nesting beyond what Python writes
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _positive(value: Any, name: str) -> float:
    if not _is_number(value) or value <= 0:
        raise DataError(f"expected a contract with {name} > 0, found {_shown(value)}")
    return float(value)


def _is_number(value: object) -> bool:
    """Whether a value is a JSON number that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def _numbers(values: Any, name: str) -> list[float]:
    """A list of JSON numbers.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(values, list | tuple) or not values:
        raise DataError(f"expected {name} as a list of numbers, found {_shown(values)}")
    for value in values:
        if not _is_number(value):
            raise DataError(f"expected {name} as a list of finite numbers, found {_shown(value)} in it")
    return [float(value) for value in values]


def _normalised(grid: Any, scale: float) -> tuple[float, ...]:
    """Divide a physical grid by the scale; digits that only the division left behind are rounded away."""
    values = np.array(_numbers(grid, "capacity_grid"))
    return tuple(float(value) for value in np.round(values / scale, 12))
