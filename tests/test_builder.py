"""The schedule of decisions and the cutting of windows."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castgym.data.builder import REASONS, BuiltCases, build_cases, exclusions_csv, summary
from castgym.data.cohorts import FAMILIES, PROTOCOL_COHORTS, Cohort, DecisionDate, cohort_weights, schedule
from castgym.data.contract import protocol_terms
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import Domain

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
JULY = (Cohort("electricity", 7, (1, 9, 17, 25), 1.0),)
MAY = (Cohort("cycle_hire", 5, (3, 11, 19, 27), 1.0),)


def table(start: str, end: str, **series: float) -> pd.DataFrame:
    hours = pd.date_range(start, end, freq="h", tz="UTC", inclusive="left")
    shape = 10 + np.arange(len(hours)) % 24
    return pd.DataFrame({name: level * shape for name, level in series.items()}, index=hours).astype(np.float64)


def build(demand: pd.DataFrame, domain: Domain = "electricity", year: int = 2023, **options: object) -> BuiltCases:
    cohorts = JULY if domain == "electricity" else MAY
    start = demand.index[0].to_pydatetime()
    decisions = schedule(year, cohorts, data_start=start, **options)  # type: ignore[arg-type]
    return build_cases(
        demand, decisions, name="x", domains=dict.fromkeys(demand.columns, domain), source={}, cohorts=cohorts
    )


# The schedule


def test_test_dates_are_those_of_the_protocol() -> None:
    test = [d for d in schedule(2026, data_start=datetime(2025, 1, 1, tzinfo=UTC)) if d.split == "test"]
    assert len(test) == (3 * 4 + 4) * 2
    electricity = {d.label for d in test if d.domain == "electricity"}
    assert electricity == {date(2026, month, day) for month in (2, 7, 8) for day in (1, 9, 17, 25)}
    for decision in test:
        assert decision.target_start - decision.as_of == {"day_ahead": DAY, "week_ahead": 7 * DAY}[decision.family]
        assert decision.target_end - decision.target_start == DAY
        if decision.domain == "electricity":
            assert decision.as_of == datetime.combine(decision.label, datetime.min.time(), UTC)
        else:
            local = decision.target_start.astimezone(ZoneInfo("Europe/London"))
            assert (local.date(), local.hour) == (decision.label, 0) and decision.target_start.hour == 23
    assert {d.cohort for d in test} == {cohort.name for cohort in PROTOCOL_COHORTS}


@settings(max_examples=60, deadline=None)
@given(
    year=st.integers(2018, 2030),
    years_before=st.integers(0, 3),
    stride=st.integers(1, 13).filter(lambda days: days % 7),
    families=st.sampled_from([FAMILIES, FAMILIES[:1], FAMILIES[1:]]),
    chosen=st.sets(st.sampled_from(PROTOCOL_COHORTS), min_size=1),
)
def test_splits_never_touch(
    year: int, years_before: int, stride: int, families: tuple[str, ...], chosen: set[Cohort]
) -> None:
    cohorts = [cohort for cohort in PROTOCOL_COHORTS if cohort in chosen]
    start = datetime(year - years_before, 1, 1, tzinfo=UTC)
    decisions = schedule(year, cohorts, data_start=start, families=families, train_stride=stride)  # type: ignore[arg-type]
    by_split = {split: [d for d in decisions if d.split == split] for split in ("train", "calibration", "test")}
    first_test = min(d.as_of for d in by_split["test"])
    first_calibration = min(d.as_of for d in by_split["calibration"])
    assert first_calibration < first_test
    for train in by_split["train"]:
        assert train.history_start >= start
        assert train.target_end <= first_calibration  # so before every test decision and every other target
    for domain in {cohort.domain for cohort in cohorts}:
        calibration = [d for d in by_split["calibration"] if d.domain == domain]
        labels = sorted({d.label for d in calibration})
        assert len(labels) == 7 and labels[-1] - labels[0] == 6 * DAY
        assert len(calibration) == 7 * len(families)
        first = min(d.as_of for d in by_split["test"] if d.domain == domain)
        assert max(d.target_end for d in calibration) <= first
    assert len({(d.domain, d.family, d.label) for d in decisions}) == len(decisions)


def test_calibration_is_the_latest_possible_week() -> None:
    decisions = schedule(2023, JULY, data_start=datetime(2023, 1, 1, tzinfo=UTC))
    week = [d for d in decisions if d.split == "calibration"]
    assert max(d.target_end for d in week) == datetime(2023, 7, 1, tzinfo=UTC)
    assert {d.label for d in week} == {date(2023, 6, day) for day in range(17, 24)}


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_train_dates_cover_every_weekday_and_stay_when_data_are_added(stride: int) -> None:
    def train(first_year: int) -> set[DecisionDate]:
        start = datetime(first_year, 1, 1, tzinfo=UTC)
        return {d for d in schedule(2023, JULY, data_start=start, train_stride=stride) if d.split == "train"}

    assert {d.label.weekday() for d in train(2022)} == set(range(7))
    assert train(2022) < train(2021)


def test_target_days_with_a_change_of_clocks_are_left_out_of_train_and_refused_as_cohort_dates() -> None:
    decisions = schedule(2023, MAY, data_start=datetime(2021, 1, 1, tzinfo=UTC), train_stride=1)
    train = {d.label for d in decisions if d.split == "train"}
    assert date(2022, 3, 26) in train and date(2022, 3, 28) in train
    assert not {date(2022, 3, 27), date(2022, 10, 30)} & train
    with pytest.raises(ConfigError, match="clocks"):
        schedule(2023, [Cohort("cycle_hire", 3, (26,), 1.0)], data_start=datetime(2022, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_stride": 7}, "multiple of 7"),
        ({"train_stride": 0}, "stride"),
        ({"families": ()}, "at least one"),
        ({"families": ("month_ahead",)}, "unknown lead"),
        ({"cohorts": JULY * 2}, "duplicates"),
        ({"cohorts": [Cohort("electricity", 2, (30,), 1.0)]}, "no date"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    arguments = {"cohorts": JULY, "data_start": datetime(2022, 1, 1, tzinfo=UTC), **options}
    with pytest.raises(ConfigError, match=message):
        schedule(2023, **arguments)  # type: ignore[arg-type]


def test_weights_are_the_protocols_and_renormalise() -> None:
    names = [cohort.name for cohort in PROTOCOL_COHORTS]
    assert cohort_weights(names) == pytest.approx(dict(zip(names, (1 / 6, 1 / 6, 1 / 6, 1 / 2), strict=True)))
    assert cohort_weights(names[:3]) == pytest.approx(dict.fromkeys(names[:3], 1 / 3))
    assert cohort_weights([names[0], names[3]]) == pytest.approx({names[0]: 0.25, names[3]: 0.75})


# The windows


def test_a_case_has_the_ids_times_and_values_of_the_protocol() -> None:
    demand = table("2026-05-01", "2026-09-01", AZPS=100.0)
    built = build(demand, year=2026)
    case = next(case for case in built.cases if case.case_id == "AZPS-2026-07-17-week_ahead")
    assert (case.group_id, case.series_id, case.unit, case.timezone) == ("AZPS", "AZPS", "MW", "UTC")
    assert case.terms == protocol_terms(date(2026, 7, 24)) and case.terms.hourly_priority[12] == 2.0
    visible = demand["AZPS"].loc[case.history_start : case.last_visible]
    assert case.history.tolist() == visible.tolist() and case.scale == visible.mean()
    truth = demand["AZPS"].loc[case.target_start : case.target_end - HOUR]
    assert built.targets[case.case_id].actual.tolist() == truth.tolist()


def test_a_cycle_hire_case_is_named_by_its_target_date_and_starts_at_local_midnight() -> None:
    demand = table("2026-04-01", "2026-06-01", **{"TFL-002696": 1.0})
    built = build(demand, "cycle_hire", 2026)
    case = next(case for case in built.cases if case.case_id == "TFL-002696-2026-05-03-week_ahead")
    assert case.target_start == datetime(2026, 5, 2, 23, tzinfo=UTC)
    assert case.as_of == datetime(2026, 4, 25, 23, tzinfo=UTC)
    assert (case.unit, case.timezone) == ("departures/hour", "Europe/London")
    assert case.terms == protocol_terms(date(2026, 5, 3))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_windows_are_kept_exactly_when_every_hour_is_usable(data: st.DataObject) -> None:
    demand = table("2023-05-20", "2023-08-10", A=3.0, B=5.0, C=7.0)
    damage = st.tuples(st.integers(0, len(demand) - 1), st.integers(0, 2), st.sampled_from([np.nan, 0.0, -5.0]))
    for row, column, value in data.draw(st.lists(damage, max_size=6)):
        demand.iloc[row, column] = value
    demand = demand.iloc[data.draw(st.sampled_from([0, 5, 400])) :]
    decisions = schedule(2023, JULY, data_start=demand.index[0].to_pydatetime(), train_stride=5)
    built = build_cases(
        demand, decisions, name="x", domains=dict.fromkeys("ABC", "electricity"), source={}, cohorts=JULY
    )
    expected = set()
    for decision in decisions:
        for name in "ABC":
            history = demand[name].loc[decision.history_start : decision.as_of - 3 * HOUR]
            target = demand[name].loc[decision.target_start : decision.target_end - HOUR]
            if len(history) == 336 and len(target) == 24 and (history > 0).all() and (target > 0).all():
                expected.add(f"{name}-{decision.label}-{decision.family}")
    assert {case.case_id for case in built.cases} == expected
    assert len(built.cases) + len(built.exclusions) == 3 * len(decisions)
    assert not {row.case_id for row in built.exclusions} & expected


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 1.0, 1e9]))
def test_the_values_of_the_target_day_decide_nothing(seed: int, scale: float) -> None:
    demand = table("2023-05-20", "2023-08-10", A=3.0)
    decision = next(
        d for d in schedule(2023, JULY, data_start=demand.index[0].to_pydatetime()) if d.label == date(2023, 7, 9)
    )
    other = demand.copy()
    hidden = other.index >= decision.as_of - 2 * HOUR
    other.loc[hidden, "A"] = np.random.default_rng(seed).uniform(0.1, 1.0, hidden.sum()) * scale

    def cut(values: pd.DataFrame) -> BuiltCases:
        return build_cases(values, [decision], name="x", domains={"A": "electricity"}, source={}, cohorts=JULY)

    one, two = cut(demand), cut(other)
    assert one.cases[0].history.tobytes() == two.cases[0].history.tobytes()
    assert one.cases[0].describe() == two.cases[0].describe()


@pytest.mark.parametrize(
    ("when", "value", "reason", "count"),
    [
        ("2023-06-30 20:00", np.nan, "history_unknown", 1),
        ("2023-07-02 23:00", np.nan, "target_unknown", 1),
        ("2023-06-30 20:00", 0.0, "history_nonpositive", 1),
        ("2023-07-02 00:00", -3.0, "target_nonpositive", 1),
    ],
)
def test_the_reason_of_an_exclusion_is_named(when: str, value: float, reason: str, count: int) -> None:
    demand = table("2023-06-01", "2023-08-10", A=3.0)
    demand.loc[pd.Timestamp(when, tz="UTC"), "A"] = value
    built = build(demand)
    found = {row.case_id: (row.reason, row.count) for row in built.exclusions}
    assert found["A-2023-07-01-day_ahead"] == (reason, count)


def test_an_hour_between_history_and_target_may_be_unknown() -> None:
    demand = table("2023-06-01", "2023-08-10", A=3.0)
    demand.loc["2023-06-30 22:00":"2023-07-01 23:00", "A"] = np.nan  # type: ignore[misc]
    ids = {case.case_id for case in build(demand).cases}
    assert "A-2023-07-01-day_ahead" in ids and "A-2023-07-09-day_ahead" not in ids


def test_a_window_outside_the_table_is_excluded_not_an_error() -> None:
    built = build(table("2023-06-20", "2023-08-01", A=3.0))
    reasons = {row.case_id: (row.reason, row.count) for row in built.exclusions if row.split == "test"}
    assert reasons["A-2023-07-01-day_ahead"] == ("outside_data", 336 - (11 * 24 - 2))
    assert reasons["A-2023-07-25-week_ahead"] == ("outside_data", 24)
    assert "A-2023-07-25-day_ahead" in {case.case_id for case in built.cases}


def test_cycle_hire_keeps_zeros_but_needs_a_departure_on_every_complete_local_day() -> None:
    demand = table("2023-04-01", "2023-06-01", S1=1.0, S2=1.0)
    may_1 = pd.date_range("2023-04-30 23:00", periods=24, freq="h", tz="UTC")  # a day in London, not in UTC
    demand.loc[may_1, "S1"] = 0.0
    demand.loc[may_1[:-1], "S2"] = 0.0
    built = build(demand, "cycle_hire")
    excluded = {row.case_id: (row.reason, row.count) for row in built.exclusions}
    assert excluded["S1-2023-05-11-day_ahead"] == ("empty_local_day", 1)
    assert excluded["S1-2023-05-11-week_ahead"] == ("empty_local_day", 1)
    # Decided at the end of May 1, whose last two hours are not visible yet: the day is not complete.
    assert "S1-2023-05-03-day_ahead" not in excluded
    assert not any(case_id.startswith("S2") for case_id in excluded if "2023-05" in case_id)
    zero = next(case for case in built.cases if case.case_id == "S1-2023-05-03-day_ahead")
    assert (zero.history[-22:] == 0).all()


def test_negative_counts_are_refused() -> None:
    demand = table("2023-04-01", "2023-06-01", S1=1.0)
    demand.iloc[5, 0] = -1.0
    with pytest.raises(DataError, match="departures >= 0"):
        build(demand, "cycle_hire")


def test_both_domains_come_in_the_order_of_the_schedule() -> None:
    demand = table("2022-06-01", "2023-10-01", E=3.0, C=4.0)
    decisions = schedule(2023, data_start=demand.index[0].to_pydatetime())
    built = build_cases(demand, decisions, name="x", domains={"E": "electricity", "C": "cycle_hire"}, source={"a": 1})
    order = {split: place for place, split in enumerate(("train", "calibration", "test"))}
    places = [order[case.split] for case in built.cases]
    assert places == sorted(places)
    assert list(built.targets) == [case.case_id for case in built.cases]
    assert sum(built.cohort_weights.values()) == pytest.approx(1.0) and len(built.cohort_weights) == 4
    assert built.source["a"] == 1 and sum(built.source["counts"]["cases"].values()) == len(built.cases)


def test_the_weight_of_a_cohort_without_cases_goes_to_the_others() -> None:
    demand = table("2022-06-01", "2023-10-01", E=3.0)
    demand.loc["2023-02-01":"2023-02-28", "E"] = np.nan  # type: ignore[misc]
    cohorts = PROTOCOL_COHORTS[:3]
    built = build_cases(
        demand,
        schedule(2023, cohorts, data_start=demand.index[0].to_pydatetime()),
        name="x",
        domains={"E": "electricity"},
        source={},
        cohorts=cohorts,
    )
    assert built.cohort_weights == pytest.approx({"electricity-july": 0.5, "electricity-august": 0.5})


def test_exclusions_and_summary_count_every_window() -> None:
    demand = table("2023-05-20", "2023-08-10", A=3.0, B=5.0)
    demand.loc["2023-07-10":"2023-07-12", "B"] = np.nan  # type: ignore[misc]
    built = build(demand)
    rows = list(csv.DictReader(io.StringIO(exclusions_csv(built))))
    assert len(rows) == len(built.exclusions) > 0
    assert {row["reason"] for row in rows} <= set(REASONS) and {row["group_id"] for row in rows} == {"B"}
    table_ = summary(built)
    assert table_["cases"].sum() == len(built.cases) and table_["excluded"].sum() == len(rows)
    test_row = table_[table_["split"] == "test"].iloc[0]
    assert (test_row["cohort"], test_row["cases"] + test_row["excluded"]) == ("electricity-july", 16)
    assert table_[[reason for reason in REASONS if reason in table_]].sum().sum() == len(rows)


def test_a_build_without_test_cases_says_why() -> None:
    with pytest.raises(DataError, match=r"no test case is left of 8 windows \(outside_data 8\)"):
        build(table("2021-01-01", "2021-03-01", A=3.0))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.tz_localize(None), "in UTC"),
        (lambda d: d.tz_convert("US/Central"), "in UTC"),
        (lambda d: d.reset_index(drop=True), "DatetimeIndex"),
        (lambda d: d.drop(d.index[100]), "consecutive"),
        (lambda d: d.shift(freq="30min"), "full hours"),
        (lambda d: d.astype("int64"), "float64"),
        (lambda d: d.replace(d.iloc[5, 0], np.inf), "finite"),
        (lambda d: d.iloc[:0], "shape"),
        (lambda d: pd.concat([d, d], axis=1), "unique"),
    ],
)
def test_a_table_of_another_form_is_refused(damage: object, message: str) -> None:
    demand = damage(table("2023-05-20", "2023-08-10", A=3.0))  # type: ignore[operator]
    decisions = schedule(2023, JULY, data_start=datetime(2023, 5, 20, tzinfo=UTC))
    with pytest.raises(DataError, match=message):
        build_cases(demand, decisions, name="x", domains={"A": "electricity"}, source={}, cohorts=JULY)


def test_a_column_without_a_domain_is_refused() -> None:
    demand = table("2023-05-20", "2023-08-10", A=3.0)
    with pytest.raises(ConfigError, match="domain for every column"):
        build_cases(demand, [], name="x", domains={}, source={}, cohorts=JULY)
