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
from castgym.data.errors import ConfigError
from castgym.data.schema import HISTORY_HOURS, LEAD_DAYS, VISIBILITY_LAG, Domain, Family, Split

CALIBRATION_DAYS = 7
"""Consecutive dates of the calibration split."""

CALENDARS: Mapping[Domain, str] = MappingProxyType({"electricity": "UTC", "cycle_hire": "Europe/London"})
"""The time zone whose days are the target days of a domain."""

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
    """

    domain: Domain
    family: Family
    cohort: str
    split: Split
    label: date
    target_date: date
    as_of: datetime
    target_start: datetime

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
) -> tuple[DecisionDate, ...]:
    """All decisions of a case set, train first, then calibration, then test.

    Args:
        test_year: year of the test cohorts.
        cohorts: test cohorts, at most one a domain and month.
        data_start: start of the first hour of data, timezone-aware; no history begins before it in the train split.
        families: leads.
        train_stride: days between train dates; no multiple of 7, so that every weekday occurs.

    Raises:
        ConfigError: the options do not fit together, or a cohort's date does not exist or has no 24 hours.
    """
    _check_options(cohorts, families, train_stride)
    domains = tuple(dict.fromkeys(cohort.domain for cohort in cohorts))
    test = [decision for cohort in cohorts for decision in _cohort_decisions(cohort, test_year, families)]
    calibration: list[DecisionDate] = []
    for domain in domains:
        first = min(decision.as_of for decision in test if decision.domain == domain)
        calibration += _calibration(domain, families, first)
    limit = min(decision.as_of for decision in calibration)
    train = [decision for domain in domains for decision in _train(domain, families, data_start, limit, train_stride)]
    return (*train, *calibration, *test)


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


def _cohort_decisions(cohort: Cohort, year: int, families: Sequence[Family]) -> Iterator[DecisionDate]:
    for day in cohort.days:
        try:
            label = date(year, cohort.month, day)
        except ValueError as error:
            raise ConfigError(f"cohort {cohort.name}: {year}-{cohort.month:02}-{day:02} is no date") from error
        for family in families:
            decision = _decision(cohort.domain, family, "test", label)
            if decision is None:
                raise ConfigError(f"cohort {cohort.name}: the target day of {label} has a change of clocks")
            yield decision


def _calibration(domain: Domain, families: Sequence[Family], first_test: datetime) -> list[DecisionDate]:
    week: list[list[DecisionDate]] = []
    label = first_test.date() + _DAY
    while len(week) < CALIBRATION_DAYS:
        label -= _DAY
        found = [_decision(domain, family, "calibration", label) for family in families]
        decisions = [decision for decision in found if decision is not None and decision.target_end <= first_test]
        if len(decisions) == len(families):
            week.insert(0, decisions)
        else:
            week.clear()  # a date that does not qualify ends the run of consecutive dates
    return [decision for day in week for decision in day]


def _train(
    domain: Domain, families: Sequence[Family], data_start: datetime, limit: datetime, stride: int
) -> Iterator[DecisionDate]:
    for ordinal in range(data_start.date().toordinal(), limit.date().toordinal() + 1):
        if ordinal % stride:  # counted from a fixed day, so that earlier data adds dates and moves none
            continue
        for family in families:
            decision = _decision(domain, family, "train", date.fromordinal(ordinal))
            if decision is not None and data_start <= decision.history_start and decision.target_end <= limit:
                yield decision


def _decision(domain: Domain, family: Family, split: Split, label: date) -> DecisionDate | None:
    """The decision of a date, or None where the target day has a change of clocks and so not 24 hours."""
    lead = timedelta(days=LEAD_DAYS[family])
    target_date = label if domain == "cycle_hire" else label + lead
    zone = ZoneInfo(CALENDARS[domain])
    start, end = (datetime.combine(day, time(), zone).astimezone(UTC) for day in (target_date, target_date + _DAY))
    if end - start != _DAY:
        return None
    return DecisionDate(
        domain, family, cohort_name(domain, label.month), split, label, target_date, start - lead, start
    )
