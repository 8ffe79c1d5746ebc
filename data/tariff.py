"""What a forecast costs: rates by model, context bucket and horizon bucket, and the budget of a case."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from castgym.data.errors import ConfigError, DataError

PROTOCOL_BUDGET = 113_726
"""Credits of a case, B."""

_HORIZONS = (24, 64, 96, 192, 240, 336)
PUBLISHED_SUFFIX = "_quantiles"
"""Suffix of model names in published files."""


_PROTOCOL_RATES: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "chronos_bolt_tiny": {
        96: (7273, 7344, 21854, 35426, 48499, 93987),
        336: (8452, 8452, 26108, 46595, 69541, 127481),
    },
    "chronos2": {
        96: (86752, 103806, 113726, 113726, 113726, 113726),
        336: (86752, 103806, 113726, 113726, 113726, 116839),
    },
    "timesfm25": {
        96: (1181871, 1187691, 1187691, 1187691, 1187691, 1187691),
        336: (1181871, 1187691, 1187691, 1187691, 1187691, 1187691),
    },
    "seasonal_empirical": {336: (400, 1027, 1588, 3065, 3756, 5206)},
}


@dataclass(frozen=True, slots=True, order=True)
class Rate:
    """The price of one bucket: `credits` for a context and horizon up to the stated steps."""

    model: str
    context_steps: int
    horizon: int
    credits: int


@dataclass(frozen=True)
class Tariff:
    """All rates of a case set and the credits that a case may spend.

    Attributes:
        budget: credits of a case, B.
        rates: one rate a (model, context bucket, horizon bucket), sorted.
    """

    budget: int
    rates: tuple[Rate, ...]

    def __post_init__(self) -> None:
        if self.budget <= 0:
            raise DataError(f"expected a budget > 0 credits, found {self.budget}")
        buckets = [(rate.model, rate.context_steps, rate.horizon) for rate in self.rates]
        if len(set(buckets)) != len(buckets):
            raise DataError("expected one rate for each model, context and horizon bucket, found duplicates")
        for rate in self.rates:
            if rate.context_steps < 1 or rate.horizon < 1 or rate.credits < 0:
                raise DataError(f"expected steps >= 1 and credits >= 0, found {rate}")
        object.__setattr__(self, "rates", tuple(sorted(self.rates)))

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all priced models."""
        return tuple(dict.fromkeys(rate.model for rate in self.rates))

    @cached_property
    def _table(self) -> dict[str, dict[int, list[tuple[int, int]]]]:
        table: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for rate in self.rates:
            table.setdefault(rate.model, {}).setdefault(rate.context_steps, []).append((rate.horizon, rate.credits))
        return table

    def price(self, model: str, horizon: int, context_steps: int) -> Rate:
        """The rate of a request: the smallest context bucket, then the smallest horizon bucket, that fits it.

        Args:
            model: a priced model's name.
            horizon: steps to forecast.
            context_steps: observations to read.

        Returns:
            The bucket and its credits.

        Raises:
            ConfigError: the model has no rate, or no bucket is large enough.

        >>> PROTOCOL_TARIFF.price("chronos_bolt_tiny", horizon=50, context_steps=336).credits
        8452
        """
        if model not in self._table:
            raise ConfigError(f"the tariff has no rate for model {model!r}; it prices {', '.join(self.models)}")
        contexts = self._table[model]
        steps = sorted(contexts)
        position = bisect_left(steps, context_steps)
        if position == len(steps):
            raise ConfigError(f"{model} has no rate for {context_steps} context steps; the largest is {steps[-1]}")
        for bucket, price in contexts[steps[position]]:
            if horizon <= bucket:
                return Rate(model, steps[position], bucket, price)
        largest = contexts[steps[position]][-1][0]
        raise ConfigError(f"{model} has no rate for a horizon of {horizon} steps; the largest is {largest}")

    def with_rates(self, rates: Iterable[Rate]) -> "Tariff":
        """A tariff with further rates."""
        return Tariff(self.budget, (*self.rates, *rates))

    def renamed(self, source: str, name: str) -> tuple[Rate, ...]:
        """The rates of model `source` under another model's name, for a model priced like it."""
        return tuple(
            Rate(name, rate.context_steps, rate.horizon, rate.credits) for rate in self.rates if rate.model == source
        )

    def to_json(self) -> dict[str, Any]:
        """The published layout: `{"budget": B, "rates": [{"model": "..._quantiles", ...}]}`."""
        return {
            "budget": self.budget,
            "rates": [
                {
                    "model": rate.model + PUBLISHED_SUFFIX,
                    "context_steps": rate.context_steps,
                    "horizon": rate.horizon,
                    "credits": rate.credits,
                }
                for rate in self.rates
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Tariff":
        """Read the layout of `to_json`; a model may stand with or without the suffix `_quantiles`.

        Raises:
            DataError: a field is missing or is not a whole number.
        """
        try:
            rates = tuple(
                Rate(
                    str(row["model"]).removesuffix(PUBLISHED_SUFFIX),
                    _whole(row["context_steps"]),
                    _whole(row["horizon"]),
                    _whole(row["credits"]),
                )
                for row in value["rates"]
            )
            return cls(_whole(value["budget"]), rates)
        except (KeyError, TypeError) as error:
            raise DataError(
                "expected a tariff {'budget': int, 'rates': [{'model', 'context_steps', 'horizon', 'credits'}]}: "
                f"{error!r}"
            ) from error


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"expected a whole number in the tariff, found {value!r}")
    return value


PROTOCOL_TARIFF = Tariff(
    PROTOCOL_BUDGET,
    tuple(
        Rate(model, context, horizon, price)
        for model, contexts in _PROTOCOL_RATES.items()
        for context, prices in contexts.items()
        for horizon, price in zip(_HORIZONS, prices, strict=True)
    ),
)
"""The published rates."""

OFFLINE_TARIFF = PROTOCOL_TARIFF.with_rates(
    rate for name in ("castgym_bolt", "fracast") for rate in PROTOCOL_TARIFF.renamed("chronos_bolt_tiny", name)
)
"""The published rates, and `castgym_bolt` and `fracast` under their own names at the price of Chronos-Bolt Tiny."""
