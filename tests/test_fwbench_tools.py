"""The nine tools: what they return, what they charge, and that replays never look ahead."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import SCRIPTED_TARIFF, ScriptedForecaster, make_case, scripted_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.errors import ForecasterUnavailableError
from castgym.data.schema import Case
from castgym.tools.forecasters.base import QUANTILE_LEVELS
from castgym.tools.forecasters.cache import DiskCache
from castgym.tools.forecasters.pool import ForecasterEntry, ForecasterPool
from castgym.tools.fwbench import FWBENCH_TOOLS, FWBenchTools, Plan
from castgym.tools.ledger import Ledger
from castgym.tools.planning.classical import CLASSICAL_METHODS
from castgym.tools.toolbox import Toolbox, ToolResult

SERIES = "TEST00"


class Bench:
    """Tools over one case, with everything that a test looks at."""

    def __init__(self, case: Case | None = None, fail: bool = False) -> None:
        self.case = case or make_case()
        self.forecaster = ScriptedForecaster(fail=fail)
        self.ledger = Ledger(SCRIPTED_TARIFF)
        self.plans: list[Plan] = []
        tools = FWBenchTools(
            self.case, self.ledger, scripted_pool(self.forecaster), ("seasonal_empirical", "scripted"), self.keep
        )
        self.toolbox: Toolbox = tools.toolbox()

    def keep(self, plan: Plan) -> str:
        self.plans.append(plan)
        return f"p{len(self.plans)}"

    def call(self, tool: str, **arguments: Any) -> ToolResult:
        result = self.toolbox.call(tool, arguments)
        json.dumps(result.content, allow_nan=False)  # every result is plain JSON
        return result

    def buy(self, **changes: Any) -> ToolResult:
        fields = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336}
        return self.call("forecast_and_plan", **{**fields, **changes})

    def replay(self, origin: Any, **changes: Any) -> ToolResult:
        fields = {"series_id": SERIES, "model": "scripted", "origin": origin, "horizon": 24, "context_steps": 96}
        return self.call("replay_forecast", **{**fields, **changes})


def test_the_toolbox_has_the_nine_protocol_tools_with_openai_schemas() -> None:
    schemas = Bench().toolbox.schemas
    assert [schema["function"]["name"] for schema in schemas] == list(FWBENCH_TOOLS)
    for schema in schemas:
        assert schema["type"] == "function"
        assert schema["function"]["description"]
        assert schema["function"]["parameters"]["type"] == "object"
        assert schema["function"]["parameters"]["additionalProperties"] is False
    quote = next(schema["function"] for schema in schemas if schema["function"]["name"] == "quote_forecast")
    assert quote["parameters"]["required"] == ["series_id", "model", "horizon", "context_steps"]
    assert quote["parameters"]["properties"]["context_steps"]["minimum"] == 2
    assert quote["parameters"]["properties"]["horizon"]["maximum"] == 336


def test_the_catalog_tells_what_can_be_bought() -> None:
    content = Bench().call("catalog").content
    assert [series["id"] for series in content["series"]] == [SERIES]
    assert [model["name"] for model in content["models"]] == ["seasonal_empirical", "scripted"]
    assert content["models"][0]["quantile_levels"] == list(QUANTILE_LEVELS)
    assert content["remaining"] == content["budget"] == 113_726
    assert {rate["model"] for rate in content["rates"]} == {"seasonal_empirical", "scripted"}


def test_history_returns_the_last_values_and_their_hours() -> None:
    bench = Bench()
    content = bench.call("history", series_id=SERIES, limit=3).content
    assert content["values"] == bench.case.history[-3:].tolist()
    assert content["timestamps"] == ["2026-07-16T19:00:00Z", "2026-07-16T20:00:00Z", "2026-07-16T21:00:00Z"]
    assert len(bench.call("history", series_id=SERIES).content["values"]) == 48


def test_inspect_series_summarises() -> None:
    content = Bench().call("inspect_series", series_id=SERIES).content
    assert (content["count"], content["missing_fraction"], content["unit"]) == (336, 0.0, "MW")
    assert content["start"] == "2026-07-02T22:00:00Z"
    assert content["end"] == "2026-07-16T21:00:00Z"


@pytest.mark.parametrize("method", CLASSICAL_METHODS)
def test_classical_plans_are_free_and_ready_to_submit(method: str) -> None:
    bench = Bench()
    content = bench.call("classical_plan", series_id=SERIES, method=method).content
    assert len(content["capacity_plan"]["submission"]["decisions"]) == 8
    assert content["capacity_plan"]["expected_normalized_loss"] == bench.plans[0].expected_loss > 0
    assert bench.ledger.spent == 0


def test_the_hourly_plan_is_the_hour_of_day_plan() -> None:
    bench = Bench()
    hourly = bench.call("hourly_history_plan", series_id=SERIES).content["capacity_plan"]["submission"]
    named = bench.call("classical_plan", series_id=SERIES, method="hour_of_day_empirical").content
    assert hourly == named["capacity_plan"]["submission"]


def test_a_quote_is_free_and_a_forecast_costs_its_quote() -> None:
    bench = Bench()
    fields = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 200}
    quote = bench.call("quote_forecast", **fields).content
    assert (quote["credits"], quote["affordable"], quote["context_bucket"], quote["horizon_bucket"]) == (
        8452,
        True,
        336,
        64,
    )
    assert bench.ledger.spent == 0
    bought = bench.call("forecast_and_plan", **fields).content
    assert bought["credits"] == bench.ledger.spent == 8452
    assert bought["predictions"] == 1
    assert "quantiles" not in json.dumps({**bought, "forecast": {**bought["forecast"], "quantile_levels": None}})
    assert np.array_equal(bench.forecaster.contexts[0][0], bench.case.history[-200:])


def test_a_forecast_that_ends_before_the_target_is_charged_and_refused() -> None:
    bench = Bench()
    result = bench.buy(horizon=49)
    assert result.error == "horizon_too_short"
    assert result.content["spent"] == bench.ledger.spent == 8452
    assert not bench.plans


def test_a_backend_that_fails_keeps_the_charge() -> None:
    bench = Bench(fail=True)
    result = bench.buy()
    assert result.error == "backend_error"
    assert bench.ledger.spent == 8452
    assert bench.ledger.charges[0].status == "backend_error"


def test_the_charge_is_on_record_before_the_forecaster_runs() -> None:
    bench = Bench()
    spent_during: list[int] = []
    predict = bench.forecaster.predict

    def watched(context: np.ndarray, horizon: int) -> np.ndarray:
        spent_during.append(bench.ledger.spent)
        return predict(context, horizon)

    bench.forecaster.predict = watched  # type: ignore[method-assign]
    bench.buy()
    assert spent_during == [8452]


@pytest.mark.parametrize("tool", ["forecast_and_plan", "replay_forecast"])
def test_a_forecaster_that_cannot_load_charges_nothing(tool: str, tmp_path: Path) -> None:
    """Its package or weights are missing: that is known before the charge, and nothing reaches the journal."""

    def missing() -> ScriptedForecaster:
        raise ForecasterUnavailableError("no weights")

    case, ledger = make_case(), Ledger(SCRIPTED_TARIFF, tmp_path / "ledger.jsonl")
    pool = ForecasterPool([ForecasterEntry(ScriptedForecaster.info, missing)])
    toolbox = FWBenchTools(case, ledger, pool, ("scripted",), lambda _: "p1").toolbox()
    arguments = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 96}
    if tool == "replay_forecast":
        arguments["origin"] = (case.last_visible - timedelta(hours=100)).isoformat()
    with pytest.raises(ForecasterUnavailableError, match="no weights"):
        toolbox.call(tool, arguments)
    assert (ledger.spent, ledger.charges) == (0, ())
    assert not (tmp_path / "ledger.jsonl").exists() or (tmp_path / "ledger.jsonl").read_text() == ""


def test_a_cached_forecast_is_sold_without_the_forecaster(tmp_path: Path) -> None:
    def missing() -> ScriptedForecaster:
        raise ForecasterUnavailableError("no weights")

    case = make_case()
    cache = DiskCache(tmp_path)
    info = ScriptedForecaster.info
    ForecasterPool([ForecasterEntry(info, ScriptedForecaster, lambda: "w1")], cache=cache).forecast(
        "scripted", case.history, 50
    )
    ledger = Ledger(SCRIPTED_TARIFF)
    pool = ForecasterPool([ForecasterEntry(info, missing, lambda: "w1")], cache=cache)
    toolbox = FWBenchTools(case, ledger, pool, ("scripted",), lambda _: "p1").toolbox()
    arguments = {"series_id": SERIES, "model": "scripted", "horizon": 50, "context_steps": 336}
    assert toolbox.call("forecast_and_plan", arguments).error is None
    assert ledger.spent == 8452


def test_what_cannot_be_paid_never_runs() -> None:
    bench = Bench()
    for _ in range(13):
        assert bench.buy().ok
    calls = len(bench.forecaster.contexts)
    assert bench.buy().error == "unaffordable"
    assert len(bench.forecaster.contexts) == calls
    assert bench.ledger.spent == 13 * 8452


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("nothing", {}, "unknown_tool"),
        ("history", {}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "limit": 0}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "limit": 337}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "limit": "48"}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "limit": 4.5}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "limit": True}, "invalid_arguments"),
        ("history", {"series_id": SERIES, "extra": 1}, "invalid_arguments"),
        ("history", {"series_id": "OTHER"}, "unknown_series"),
        ("inspect_series", {"series_id": 3}, "invalid_arguments"),
        ("classical_plan", {"series_id": SERIES, "method": "magic"}, "invalid_arguments"),
        ("quote_forecast", {"series_id": SERIES, "model": "magic", "horizon": 5, "context_steps": 5}, "unknown_model"),
        (
            "quote_forecast",
            {"series_id": SERIES, "model": "scripted", "horizon": 0, "context_steps": 5},
            "invalid_arguments",
        ),
        (
            "quote_forecast",
            {"series_id": SERIES, "model": "scripted", "horizon": 5, "context_steps": 1},
            "invalid_arguments",
        ),
    ],
)
def test_faults_are_named_and_free(tool: str, arguments: dict[str, Any], error: str) -> None:
    bench = Bench()
    result = bench.call(tool, **arguments)
    assert result.error == error
    assert result.content["error"] == error
    assert result.content["message"]
    assert bench.ledger.spent == 0


def test_seasonal_empirical_needs_a_week_of_context_and_says_so_for_free() -> None:
    bench = Bench()
    assert bench.buy(model="seasonal_empirical", context_steps=167).error == "insufficient_context"
    assert bench.ledger.spent == 0
    assert bench.buy(model="seasonal_empirical", context_steps=168).ok


def test_error_messages_do_not_repeat_hostile_input_at_length() -> None:
    bench = Bench()
    flood = "x" * 100_000
    for result in (
        bench.call(flood),
        bench.call("history", series_id=flood),
        bench.call("history", series_id=SERIES, limit=flood),
        bench.call("classical_plan", series_id=SERIES, method=flood),
        bench.replay(flood),
        bench.buy(model=flood),
        bench.call("history", **{flood[:50] + str(number): 1 for number in range(500)}),
    ):
        assert len(json.dumps(result.content)) < 3000


class TestReplay:
    def test_measures_pinball_loss_on_the_observed_hours(self) -> None:
        bench = Bench()
        content = bench.replay("2026-07-15T00:00:00Z").content
        observed = bench.case.history[290:314]
        quantiles = 1000 + np.asarray(QUANTILE_LEVELS)
        error = observed[:, None] - quantiles
        levels = np.asarray(QUANTILE_LEVELS)
        assert content["pinball_loss"] == pytest.approx(
            np.where(error > 0, levels * error, (levels - 1) * error).mean()
        )
        assert (content["observed_hours"], content["complete"]) == (24, True)
        assert bench.ledger.spent == 7273

    def test_counts_only_hours_that_were_observed(self) -> None:
        content = Bench().replay("2026-07-16T20:00:00Z").content
        assert (content["observed_hours"], content["complete"]) == (2, False)

    @settings(max_examples=60, deadline=None)
    @given(minutes=st.integers(0, 336 * 60), horizon=st.integers(1, 100), context=st.integers(2, 336))
    def test_replay_never_reads_past_its_origin(self, minutes: int, horizon: int, context: int) -> None:
        """Changing every hour that had not ended by the origin changes nothing that the forecaster is given."""
        case = make_case()
        origin = case.history_start + timedelta(minutes=minutes)
        ended = minutes // 60
        changed = case.history.copy()
        changed[ended:] = 7.0
        given_contexts = []
        for history in (case.history, changed):
            bench = Bench(make_case(history=history))
            result = bench.replay(origin.isoformat(), horizon=horizon, context_steps=context)
            given_contexts.append([context.tolist() for context in bench.forecaster.contexts])
            assert result.ok == (context <= ended and ended < 336)
        assert given_contexts[0] == given_contexts[1]

    @pytest.mark.parametrize(
        ("origin", "error"),
        [
            ("2026-07-15T00:00:00", "invalid_arguments"),
            ("yesterday", "invalid_arguments"),
            ("2026-07-17T00:00:01Z", "origin_not_allowed"),
            ("2026-07-17T00:00:00Z", "origin_not_allowed"),
            ("2026-07-03T00:00:00Z", "insufficient_context"),
            ("0001-01-01T00:00:00+23:59", "insufficient_context"),
            ("9999-12-31T23:59:59-23:59", "origin_not_allowed"),
        ],
    )
    def test_bad_origins_are_refused_for_free(self, origin: str, error: str) -> None:
        bench = Bench()
        assert bench.replay(origin).error == error
        assert bench.ledger.spent == 0

    def test_an_origin_in_another_timezone_is_the_same_moment(self) -> None:
        one, other = Bench().replay("2026-07-15T00:00:00Z"), Bench().replay("2026-07-15T02:00:00+02:00")
        assert one.content["pinball_loss"] == other.content["pinball_loss"]
