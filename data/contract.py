"""The terms of a capacity contract, as data.

The protocol's contract (FWBench section 3.2 and 4.1) is one point of a more general schema: billing of surplus or
of all capacity, blocks of 1, 3 or 6 hours, an emergency price and a price of change. The arithmetic lives in
`castgym.tools.planning`; this module only says what was agreed.
"""

from datetime import date
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

TARGET_HOURS = 24
"""Hours of a target day (T)."""

PROTOCOL_GRID: tuple[float, ...] = tuple(round(0.40 + 0.05 * step, 2) for step in range(33))
"""Normalised capacities G = {0.40, 0.45, ..., 2.00}."""

Number = Annotated[float, Field(strict=True)]
"""A JSON number: neither text nor a boolean is turned into one."""

_SEGMENTS = (1.0, 1.0, 2.0, 1.5)
"""Shortage weights of the four six-hour segments of a Monday."""


class ContractTerms(BaseModel):
    """Terms of a contract in normalised units (capacity and demand divided by the case's scale).

    Attributes:
        billing: `imbalance` pays for surplus capacity, `reservation` pays for all capacity.
        block_hours: hours that share one capacity: 1, 3 or 6.
        reservation: price of surplus (or reserved) capacity, alpha in Eq. (1).
        shortage: multiplier of the hourly shortage weight.
        emergency: extra price of shortage beyond `emergency_buffer`.
        emergency_buffer: shortage that costs no emergency price.
        adjustment: price per unit of change between adjacent blocks.
        ramp: largest change between adjacent blocks, r.
        hourly_priority: shortage weight w_h of each of the 24 hours.
        grid: allowed normalised capacities G, strictly increasing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    billing: Literal["imbalance", "reservation"] = "imbalance"
    block_hours: Literal[1, 3, 6] = 3
    reservation: Number = Field(default=0.3, ge=0)
    shortage: Number = Field(default=1.0, ge=0)
    emergency: Number = Field(default=0.0, ge=0)
    emergency_buffer: Number = Field(default=0.1, ge=0)
    adjustment: Number = Field(default=0.0, ge=0)
    ramp: Number = Field(default=0.3, ge=0)
    hourly_priority: tuple[Number, ...] = Field(min_length=TARGET_HOURS, max_length=TARGET_HOURS)
    grid: tuple[Number, ...] = Field(default=PROTOCOL_GRID, min_length=1)

    @field_validator("block_hours", mode="before")
    @classmethod
    def _hours_are_a_number(cls, hours: Any) -> Any:
        if isinstance(hours, bool):  # Python takes true for 1
            raise ValueError("expected 1, 3 or 6")
        return hours

    @field_validator("hourly_priority")
    @classmethod
    def _weights_are_not_negative(cls, weights: tuple[float, ...]) -> tuple[float, ...]:
        if min(weights) < 0:
            raise ValueError("expected 24 weights >= 0")
        return weights

    @model_validator(mode="after")
    def _grid_increases(self) -> "ContractTerms":
        if self.grid[0] < 0 or any(high <= low for low, high in zip(self.grid, self.grid[1:], strict=False)):
            raise ValueError("expected a grid of capacities >= 0 in strictly increasing order")
        return self

    @property
    def n_blocks(self) -> int:
        """Number of capacities in a plan."""
        return TARGET_HOURS // self.block_hours


def hourly_priority(local_target_date: date) -> tuple[float, ...]:
    """Shortage weights of a target day: segments [1, 1, 2, 1.5] rolled right by weekday mod 4 (protocol, contract).

    Args:
        local_target_date: the target day's date on the local calendar of its domain.

    Returns:
        24 weights, one an hour.

    >>> hourly_priority(date(2026, 7, 24))[::6]
    (1.0, 1.0, 2.0, 1.5)
    >>> hourly_priority(date(2026, 7, 26))[::6]
    (2.0, 1.5, 1.0, 1.0)
    """
    rolled = np.roll(_SEGMENTS, local_target_date.weekday() % 4)
    return tuple(float(weight) for weight in np.repeat(rolled, 6))


def protocol_terms(local_target_date: date) -> ContractTerms:
    """The protocol's contract for a target day."""
    return ContractTerms(hourly_priority=hourly_priority(local_target_date))
