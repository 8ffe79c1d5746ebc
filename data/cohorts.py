"""Which decisions are taken: dates of the test cohorts, the calibration week and the train split.

Rules (FWBench section 4.1 for the cohorts; the protocol is silent on the train split):

* `test`: the cohorts' dates of the test year.
* `calibration`: for each domain the last seven consecutive dates whose target days, at every lead, ended before the
  domain's first test decision.
* `train`: every `train_stride`-th date whose target day ended before the first calibration decision of any domain.

So no train target is later than a calibration decision, and no calibration target is later than a test decision of
its domain. The rules see the calendar only, never a value.
"""

from calendar import month_name
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

from castgym.data.contract import TARGET_HOURS
from castgym.data.errors import ConfigError, DataError
from castgym.data.schema import HISTORY_HOURS, LEAD_DAYS, VISIBILITY_LAG, Domain, Family, Split

CALIBRATION_DAYS = 7
"""Consecutive dates of the calibration split."""

CALENDARS: Mapping[Domain, str] = MappingProxyType({"electricity": "UTC", "cycle_hire": "Europe/London"})
"""The time zone whose days are the target days of a domain, in the protocol."""

UNITS: Mapping[Domain, str] = MappingProxyType({"electricity": "MW", "cycle_hire": "departures/hour"})
"""The unit of a domain's demand, in the protocol."""

FAMILIES: tuple[Family, ...] = ("day_ahead", "week_ahead")

_DAY = timedelta(days=1)
_HISTORY_SPAN = VISIBILITY_LAG + timedelta(hours=HISTORY_HOURS - 1)


@dataclass(frozen=True, slots=True)
class Cohort:
    """The test dates of one domain in one month.

    Attributes:
        domain: `electricity` (days are decision dates) or `cycle_hire` (days are target dates).
        month: 1 to 12.
        days: days of the month.
        weight: weight in the aggregate before renormalising over the cohorts present.
    """

    domain: Domain
    month: int
    days: tuple[int, ...]
    weight: float

    @property
    def name(self) -> str:
        """The protocol's name, such as `electricity-july`."""
        return cohort_name(self.domain, self.month)


PROTOCOL_COHORTS: tuple[Cohort, ...] = (
    Cohort("electricity", 2, (1, 9, 17, 25), 1 / 6),
    Cohort("electricity", 7, (1, 9, 17, 25), 1 / 6),
    Cohort("electricity", 8, (1, 9, 17, 25), 1 / 6),
    Cohort("cycle_hire", 5, (3, 11, 19, 27), 1 / 2),
)
"""The protocol's test cohorts and their weights."""


@dataclass(frozen=True, slots=True)
class DecisionDate:
    """One decision that is taken for every series of a domain.

    Attributes:
        domain: `electricity` or `cycle_hire`.
        family: `day_ahead` or `week_ahead`.
        cohort: name of season and domain.
        split: `train`, `calibration` or `test`.
        label: the date in the case id: the decision date (electricity) or the target date (cycle hire).
        target_date: the target day on the domain's calendar.
        as_of: decision time, UTC.
        target_start: first target hour, UTC.
        timezone: the domain's calendar.
    """

    domain: Domain
    family: Family
    cohort: str
    split: Split
    label: date
    target_date: date
    as_of: datetime
    target_start: datetime
    timezone: str

    @property
    def history_start(self) -> datetime:
        """Start of the first visible hour, UTC."""
        return self.as_of - _HISTORY_SPAN

    @property
    def target_end(self) -> datetime:
        """End of the target day, exclusive, UTC."""
        return self.target_start + timedelta(hours=TARGET_HOURS)


def cohort_name(domain: Domain, month: int) -> str:
    """Name of a domain's cohort in a month: the protocol's names, the month's name for months it does not use.

    >>> cohort_name("electricity", 2), cohort_name("electricity", 10), cohort_name("cycle_hire", 5)
    ('electricity-winter', 'electricity-october', 'cycle-hire-may')
    """
    season = "winter" if (domain, month) == ("electricity", 2) else month_name[month].lower()
    return f"{domain.replace('_', '-')}-{season}"


def cohort_weights(present: Iterable[str], cohorts: Sequence[Cohort] = PROTOCOL_COHORTS) -> dict[str, float]:
    """Weights of the cohorts that are present, renormalised to sum to 1 (protocol, objective).

    Args:
        present: names of the cohorts that have test cases.
        cohorts: all cohorts with their weights.

    >>> cohort_weights(["electricity-july", "electricity-august"])
    {'electricity-july': 0.5, 'electricity-august': 0.5}
    """
    names = set(present)
    kept = {cohort.name: cohort.weight for cohort in cohorts if cohort.name in names}
    total = sum(kept.values())
    return {name: weight / total for name, weight in kept.items()}


def schedule(
    test_year: int,
    cohorts: Sequence[Cohort] = PROTOCOL_COHORTS,
    *,
    data_start: datetime,
    families: Sequence[Family] = FAMILIES,
    train_stride: int = 3,
    calendars: Mapping[Domain, str] = CALENDARS,
) -> tuple[DecisionDate, ...]:
    """All decisions of a case set, train first, then calibration, then test.

    Args:
        test_year: year of the test cohorts.
        cohorts: test cohorts, at most one a domain and month.
        data_start: start of the first hour of data, timezone-aware; no history begins before it in the train split.
        families: leads.
        train_stride: days between train dates; no multiple of 7, so that every weekday occurs.
        calendars: time zone of each domain's target days; its offsets from UTC must be whole hours.

    Raises:
        ConfigError: the options do not fit together, or a cohort's date does not exist or has no 24 hours.
    """
    _check_options(cohorts, families, train_stride)
    zones = {cohort.domain: _zone(calendars[cohort.domain]) for cohort in cohorts}
    test = [row for cohort in cohorts for row in _cohort_decisions(cohort, test_year, families, zones[cohort.domain])]
    calibration: list[DecisionDate] = []
    for domain, zone in zones.items():
        first = min(decision.as_of for decision in test if decision.domain == domain)
        calibration += _calibration(domain, zone, families, first)
    limit = min(decision.as_of for decision in calibration)
    train: list[DecisionDate] = []
    for domain, zone in zones.items():
        train += _train(domain, zone, families, data_start, limit, train_stride)
    return (*train, *calibration, *test)


def covers(
    cohort: Cohort,
    year: int,
    first: datetime,
    end: datetime,
    *,
    families: Sequence[Family] = FAMILIES,
    calendars: Mapping[Domain, str] = CALENDARS,
) -> bool:
    """Whether data from `first` to `end` (exclusive) hold every window of a cohort's test dates.

    Raises:
        ConfigError: as for `schedule`.
    """
    decisions = list(_cohort_decisions(cohort, year, families, _zone(calendars[cohort.domain])))
    starts, ends = [row.history_start for row in decisions], [row.target_end for row in decisions]
    return first <= min(starts) and max(ends) <= end


def latest_year(
    cohorts: Sequence[Cohort],
    first: datetime,
    end: datetime,
    *,
    families: Sequence[Family] = FAMILIES,
    calendars: Mapping[Domain, str] = CALENDARS,
) -> int:
    """The latest year in which data from `first` to `end` (exclusive) cover all cohorts.

    Raises:
        DataError: there is none.
        ConfigError: as for `schedule`.
    """
    for year in range(end.year, first.year - 1, -1):
        if all(covers(cohort, year, first, end, families=families, calendars=calendars) for cohort in cohorts):
            return year
    raise DataError(
        f"the files cover {span(first, end)}: no year has all of {', '.join(cohort.name for cohort in cohorts)}, each "
        f"from {reach(cohorts, families)}; add files, or name the test year and its cohorts"
    )


def reach(cohorts: Sequence[Cohort], families: Sequence[Family]) -> str:
    """The days that the windows of cohorts of one domain take, for messages."""
    # The days of electricity cohorts are decision dates, those of cycle-hire cohorts target dates.
    lead = max(LEAD_DAYS[family] for family in families) if cohorts[0].domain == "cycle_hire" else 0
    return f"{HISTORY_HOURS // 24 + 1 + lead} days before its first date to the end of its last target day"


def span(first: datetime, end: datetime) -> str:
    """A span of hours for messages, such as `2021-01-01 00:00 to 2024-01-01 00:00 UTC`."""
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # a folder of the database is an OSError
        raise ConfigError(f"expected a calendar such as Europe/London, found {name!r}") from error


def _check_options(cohorts: Sequence[Cohort], families: Sequence[Family], train_stride: int) -> None:
    if not cohorts or not families:
        raise ConfigError("expected at least one cohort and one lead")
    if unknown := sorted(set(families) - set(FAMILIES)):
        raise ConfigError(f"unknown lead {', '.join(unknown)}: expected {' or '.join(FAMILIES)}")
    if len({cohort.name for cohort in cohorts}) != len(cohorts) or len(set(families)) != len(families):
        raise ConfigError("expected each cohort and each lead once, found duplicates")
    if train_stride < 1 or train_stride % 7 == 0:
        raise ConfigError(
            f"expected a train stride of at least 1 day that is no multiple of 7 (else the train split sees one "
            f"weekday only), found {train_stride}"
        )


def _cohort_decisions(cohort: Cohort, year: int, families: Sequence[Family], zone: ZoneInfo) -> Iterator[DecisionDate]:
    for day in cohort.days:
        try:
            label = date(year, cohort.month, day)
        except ValueError as error:
            raise ConfigError(f"cohort {cohort.name}: {year}-{cohort.month:02}-{day:02} is no date") from error
        for family in families:
            decision = _decision(cohort.domain, zone, family, "test", label)
            if decision is None:
                raise ConfigError(f"cohort {cohort.name}: the target day of {label} has a change of clocks")
            yield decision


def _calibration(
    domain: Domain, zone: ZoneInfo, families: Sequence[Family], first_test: datetime
) -> list[DecisionDate]:
    week: list[list[DecisionDate]] = []
    label = first_test.date() + _DAY
    while len(week) < CALIBRATION_DAYS:
        label -= _DAY
        found = [_decision(domain, zone, family, "calibration", label) for family in families]
        decisions = [decision for decision in found if decision is not None and decision.target_end <= first_test]
        if len(decisions) == len(families):
            week.insert(0, decisions)
        else:
            week.clear()  # a date that does not qualify ends the run of consecutive dates
    return [decision for day in week for decision in day]


def _train(
    domain: Domain, zone: ZoneInfo, families: Sequence[Family], data_start: datetime, limit: datetime, stride: int
) -> Iterator[DecisionDate]:
    for ordinal in range(data_start.date().toordinal(), limit.date().toordinal() + 1):
        if ordinal % stride:  # counted from a fixed day, so that earlier data adds dates and moves none
            continue
        for family in families:
            decision = _decision(domain, zone, family, "train", date.fromordinal(ordinal))
            if decision is not None and data_start <= decision.history_start and decision.target_end <= limit:
                yield decision


def _decision(domain: Domain, zone: ZoneInfo, family: Family, split: Split, label: date) -> DecisionDate | None:
    """The decision of a date, or None where the target day has a change of clocks and so not 24 hours.

    Raises:
        ConfigError: the day does not begin at a full hour of UTC.
    """
    lead = timedelta(days=LEAD_DAYS[family])
    target_date = label if domain == "cycle_hire" else label + lead
    start, end = (datetime.combine(day, time(), zone).astimezone(UTC) for day in (target_date, target_date + _DAY))
    if start != start.replace(minute=0, second=0):
        raise ConfigError(
            f"calendar {zone.key}: the day {target_date} begins at {start:%H:%M} UTC, and hourly data in UTC cannot be "
            "cut there; expected a calendar whose offsets are whole hours"
        )
    if end - start != _DAY:
        return None
    cohort = cohort_name(domain, label.month)
    return DecisionDate(domain, family, cohort, split, label, target_date, start - lead, start, zone.key)
