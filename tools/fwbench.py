"""The nine tools of the FWBench protocol, over one case.

The tools see a `Case`, which holds nothing after its `last_visible` hour, and a `Ledger`. They hold no target.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from castgym.data.errors import ConfigError
from castgym.data.files import iso_utc
from castgym.data.schema import HISTORY_HOURS, Case
from castgym.tools.forecasters.base import QUANTILE_LEVELS, BackendError, FloatArray, pinball_loss
from castgym.tools.forecasters.pool import ForecasterPool
from castgym.tools.ledger import Ledger, Quote, UnaffordableError
from castgym.tools.planning.batch import classical_plans, forecast_distributions, plan_cases
from castgym.tools.planning.classical import CLASSICAL_METHODS
from castgym.tools.planning.contract import CapacityContract
from castgym.tools.toolbox import Toolbox, ToolError

FWBENCH_TOOLS: tuple[str, ...] = (
    "catalog",
    "history",
    "inspect_series",
    "budget_status",
    "quote_forecast",
    "forecast_and_plan",
    "hourly_history_plan",
    "classical_plan",
    "replay_forecast",
)
"""Names of the protocol's tools."""

MAX_HORIZON = 336

SeriesId = Annotated[str, Field(description="Series to read, as the catalog names it.")]
Model = Annotated[str, Field(description="Forecast model, as the catalog names it.")]
Horizon = Annotated[int, Field(ge=1, le=MAX_HORIZON, description="Hourly steps to forecast.")]
ContextSteps = Annotated[int, Field(ge=2, le=HISTORY_HOURS, description="Past hours that the model reads.")]
Method = Annotated[str, Field(description="Free method.", json_schema_extra={"enum": list(CLASSICAL_METHODS)})]
Origin = Annotated[
    str, Field(max_length=40, description="Past time (ISO 8601 with UTC offset) at which the forecast is made.")
]
Limit = Annotated[int, Field(ge=1, le=HISTORY_HOURS, description="How many of the last hours to return.")]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that a tool proposed.

    Attributes:
        source: where it comes from, such as `classical_plan:weekly_repeat`.
        grid_index: grid index of each block.
        expected_loss: the optimiser's own objective, normalised units.
        credits: what it cost.
    """

    source: str
    grid_index: tuple[int, ...]
    expected_loss: float
    credits: int


class FWBenchTools:
    """The tools of one episode. Every method named in `tool_names` is a tool; a subclass may add some.

    Attributes:
        tool_names: names of the tools, in the order in which prompts list them.

    Args:
        case: what the agent may know.
        ledger: what it has spent.
        pool: forecasters.
        models: names of those that may be bought here.
        on_plan: keeps every plan that a tool proposes and returns its id.
    """

    tool_names: tuple[str, ...] = FWBENCH_TOOLS

    def __init__(
        self,
        case: Case,
        ledger: Ledger,
        pool: ForecasterPool,
        models: tuple[str, ...],
        on_plan: Callable[[Plan], str],
    ) -> None:
        self.case = case
        self._ledger = ledger
        self._pool = pool
        self._models = models
        self._on_plan = on_plan

    def toolbox(self, *, name_series: bool = True) -> Toolbox:
        """These tools, callable by name.

        Args:
            name_series: calls have to name the case's only series, as the protocol wants it.
        """
        return Toolbox(self, self.tool_names, None if name_series else {"series_id": self.case.series_id})

    def catalog(self) -> Mapping[str, Any]:
        """List the visible series, the decision time, the forecast models with their prices, and the budget."""
        case = self.case
        return {
            "series": [
                {
                    "id": case.series_id,
                    "name": f"hourly {case.domain.replace('_', ' ')} demand of {case.group_id}",
                    "unit": case.unit,
                    "frequency": "1h",
                }
            ],
            "as_of": iso_utc(case.as_of),
            "last_visible": iso_utc(case.last_visible),
            "target_start": iso_utc(case.target_start),
            "target_end": iso_utc(case.target_end),
            "models": [
                {"name": info.name, "quantile_levels": list(QUANTILE_LEVELS), "notes": info.notes}
                for info in map(self._pool.info, self._models)
            ],
            "free_methods": list(CLASSICAL_METHODS),
            **self._budget(),
            "rates": self._rates(),
            "semantics": {
                "horizon": f"steps after last_visible; {case.expected_horizon} reach the end of the target day",
                "context_steps": f"latest observations read, at most {HISTORY_HOURS}",
            },
        }

    def history(self, series_id: SeriesId, limit: Limit = 48) -> Mapping[str, Any]:
        """Return the last hours of a series: timestamps (start of each hour, UTC) and values."""
        self._check_series(series_id)
        first = self.case.last_visible - timedelta(hours=limit - 1)
        return {
            "series_id": series_id,
            "unit": self.case.unit,
            "timestamps": [iso_utc(first + timedelta(hours=hour)) for hour in range(limit)],
            "values": self.case.history[-limit:].tolist(),
        }

    def inspect_series(self, series_id: SeriesId) -> Mapping[str, Any]:
        """Summarise a series: number of observations, missing share, first and last hour, unit."""
        self._check_series(series_id)
        case = self.case
        return {
            "series_id": series_id,
            "count": len(case.history),
            "missing_fraction": 0.0,  # a case exists only where all 336 hours were observed
            "start": iso_utc(case.history_start),
            "end": iso_utc(case.last_visible),
            "unit": case.unit,
        }

    def budget_status(self) -> Mapping[str, Any]:
        """Show the credit budget, what was spent, what remains, how many forecasts were bought, and all prices."""
        return {**self._budget(), "rates": self._rates()}

    def quote_forecast(
        self, series_id: SeriesId, model: Model, horizon: Horizon, context_steps: ContextSteps
    ) -> Mapping[str, Any]:
        """Quote the price of a forecast without buying it."""
        quote = self._quote(series_id, model, horizon, context_steps)
        return {**asdict(quote), **self._budget()}

    def forecast_and_plan(
        self, series_id: SeriesId, model: Model, horizon: Horizon, context_steps: ContextSteps
    ) -> Mapping[str, Any]:
        """Buy a forecast (charged even if it ends before the target day does); returns the plan optimal for it."""
        case = self.case
        quote = self._quote(series_id, model, horizon, context_steps)
        self._check_context(model, context_steps, context_steps)
        quantiles = self._buy(quote, "forecast_and_plan", case.history[-context_steps:])
        if horizon < case.expected_horizon:
            raise ToolError(
                "horizon_too_short",
                f"the forecast of {horizon} steps ends before the target day does ({case.expected_horizon} steps); "
                "it was charged",
                {"credits": quote.credits, **self._budget()},
            )
        plans, losses = plan_cases([case], lambda _: forecast_distributions(quantiles[None], case.expected_horizon))
        source = f"forecast_and_plan:{model}:h{horizon}:c{context_steps}"
        return {
            "capacity_plan": self._propose(Plan(source, tuple(map(int, plans[0])), float(losses[0]), quote.credits)),
            "forecast": {
                "model": model,
                "horizon": horizon,
                "context_steps": context_steps,
                "first_step": iso_utc(case.last_visible + timedelta(hours=1)),
                "quantile_levels": list(QUANTILE_LEVELS),
            },
            "credits": quote.credits,
            **self._budget(),
        }

    def hourly_history_plan(self, series_id: SeriesId) -> Mapping[str, Any]:
        """Get the free plan that is optimal for all visible observations at the same hour of the day."""
        return self._classical(series_id, "hour_of_day_empirical", "hourly_history_plan")

    def classical_plan(self, series_id: SeriesId, method: Method) -> Mapping[str, Any]:
        """Get the free plan that is optimal for the distribution of one classical method."""
        if method not in CLASSICAL_METHODS:
            raise ToolError("invalid_arguments", f"no method {method[:80]!r}; methods: {', '.join(CLASSICAL_METHODS)}")
        return self._classical(series_id, method, f"classical_plan:{method}")

    def replay_forecast(
        self, series_id: SeriesId, model: Model, origin: Origin, horizon: Horizon, context_steps: ContextSteps
    ) -> Mapping[str, Any]:
        """Buy a forecast made at a past origin from earlier data only; returns its pinball loss on the hours since.

        The price is that of a forecast.
        """
        case = self.case
        quote = self._quote(series_id, model, horizon, context_steps)
        known = self._hours_before(origin)
        observed = case.history[known : known + horizon]
        if not len(observed):
            raise ToolError("origin_not_allowed", f"no observed hour follows {origin}; nothing could be measured")
        self._check_context(model, context_steps, known)
        quantiles = self._buy(quote, "replay_forecast", case.history[known - context_steps : known])
        return {
            "model": model,
            "origin": origin,
            "pinball_loss": pinball_loss(quantiles[: len(observed)], observed),
            "unit": case.unit,
            "observed_hours": len(observed),
            "complete": len(observed) == horizon,
            "credits": quote.credits,
            **self._budget(),
        }

    def _classical(self, series_id: str, method: str, source: str) -> Mapping[str, Any]:
        self._check_series(series_id)
        plans, losses = classical_plans([self.case], method)
        plan = Plan(source, tuple(map(int, plans[0])), float(losses[0]), 0)
        return {"capacity_plan": self._propose(plan), "method": method}

    def _propose(self, plan: Plan) -> Mapping[str, Any]:
        return {
            "plan_id": self._on_plan(plan),
            "submission": CapacityContract.of(self.case).submission(plan.grid_index),
            "expected_normalized_loss": plan.expected_loss,
        }

    def _quote(self, series_id: str, model: str, horizon: int, context_steps: int) -> Quote:
        self._check_series(series_id)
        if model not in self._models:
            known = ", ".join(self._models) or "none (no forecasts are sold here)"
            raise ToolError("unknown_model", f"no model {model[:80]!r}; models: {known}")
        try:
            return self._ledger.quote(model, horizon, context_steps)
        except ConfigError as error:
            raise ToolError("invalid_arguments", str(error)) from error

    def _buy(self, quote: Quote, tool: str, context: FloatArray) -> FloatArray:
        """Charge first, then forecast: a crash in between keeps the charge."""
        try:
            self._ledger.check(quote)
            self._pool.prepare(quote.model, context, quote.horizon)  # what is missing is known before the charge
            number = self._ledger.charge(quote, tool)
        except UnaffordableError as error:
            raise ToolError("unaffordable", str(error), self._budget()) from error
        try:
            quantiles = self._pool.forecast(quote.model, context, quote.horizon)
        except BackendError as error:
            self._ledger.settle(number, "backend_error")
            details = {"credits": quote.credits, **self._budget()}
            raise ToolError("backend_error", f"{quote.model} failed; the charge stays", details) from error
        self._ledger.settle(number, "settled")
        return quantiles

    def _check_series(self, series_id: str) -> None:
        if series_id != self.case.series_id:
            raise ToolError("unknown_series", f"no series {series_id[:80]!r}; series: {self.case.series_id}")

    def _check_context(self, model: str, context_steps: int, available: int) -> None:
        least = self._pool.info(model).min_context
        if context_steps < least:
            raise ToolError("insufficient_context", f"{model} needs context_steps >= {least}, found {context_steps}")
        if available < context_steps:
            raise ToolError(
                "insufficient_context",
                f"context_steps={context_steps} reaches back further than the {available} hours before the origin",
            )

    def _hours_before(self, origin: str) -> int:
        """Number of visible hours that had ended by the origin."""
        try:
            moment = datetime.fromisoformat(origin)
        except ValueError as error:
            raise ToolError("invalid_arguments", f"origin: expected ISO 8601, found {origin[:80]!r}") from error
        if moment.tzinfo is None:
            raise ToolError("invalid_arguments", f"origin: expected a UTC offset, found {origin[:80]!r}")
        if moment > self.case.as_of:
            raise ToolError("origin_not_allowed", f"origin {origin} lies after as_of {iso_utc(self.case.as_of)}")
        hours = int(np.floor((moment - self.case.history_start) / timedelta(hours=1)))
        return min(max(hours, 0), len(self.case.history))

    def _budget(self) -> dict[str, Any]:
        ledger = self._ledger
        return {
            "budget": ledger.tariff.budget,
            "spent": ledger.spent,
            "remaining": ledger.remaining,
            "predictions": len(ledger.charges),
        }

    def _rates(self) -> list[dict[str, Any]]:
        return [asdict(rate) for rate in self._ledger.tariff.rates if rate.model in self._models]
