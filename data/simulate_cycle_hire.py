"""Simulated cycle-hire departures: 12 docking stations of one city, from commuting to leisure.

A count is Poisson with a rate = level x profile of the hour (commuters' peaks on workdays, leisure on free days) x
season x weather x deviations of the day and of the hour. The weather is shared by all stations and matters most to
leisure trips, so stations err together, as real ones do. Sizes were set on the published losses (docs/data.md).
"""

import numpy as np
import pandas as pd

from castgym.data.simulate_calendar import free_days
from castgym.data.simulate_parts import Draws, FloatArray, autoregressive

STATIONS = 12
TIMEZONE = "Europe/London"

_STREAM = 3  # with it, seed 0 has test cohorts of ordinary difficulty

# Departures by local hour of a station with only this kind of trip; a station mixes them.
_MORNING = (0.1, 0.05, 0.03, 0.02, 0.05, 0.3, 1.8, 5.0, 6.8, 2.3, 0.8, 0.7,
            0.8, 0.9, 0.8, 0.9, 1.1, 1.6, 1.4, 0.8, 0.5, 0.4, 0.3, 0.2)  # fmt: skip
_EVENING = (0.15, 0.08, 0.05, 0.03, 0.03, 0.1, 0.4, 1.0, 1.6, 0.9, 0.8, 0.9,
            1.2, 1.2, 1.1, 1.4, 2.6, 6.6, 5.4, 2.4, 1.2, 0.8, 0.6, 0.3)  # fmt: skip
_LEISURE = (0.16, 0.1, 0.06, 0.04, 0.03, 0.03, 0.05, 0.12, 0.3, 0.6, 1.1, 1.8,
            2.4, 2.8, 3.1, 3.2, 3.0, 2.5, 1.8, 1.1, 0.6, 0.4, 0.3, 0.2)  # fmt: skip


def simulate_cycle_hire(hours: pd.DatetimeIndex, seed: int) -> pd.DataFrame:
    """Hourly departures of all stations, whole numbers.

    Args:
        hours: consecutive UTC hour starts, beginning at 00:00.
        seed: random seed, >= 0.

    Returns:
        Shape (T, 12), float64, columns `SIMC01` to `SIMC12`.
    """
    draws = Draws(seed, _STREAM)
    local = hours.tz_convert(TIMEZONE)
    day = np.asarray((local.normalize().tz_localize(None) - pd.Timestamp(local[0].date())).days)
    leisure: FloatArray = np.linspace(0.0, 0.9, STATIONS)
    level = 4.0 + 7.0 * draws.uniform(STATIONS)
    sky = autoregressive(draws.normal(int(day[-1]) + 1, 1), 0.55)
    own = autoregressive(draws.normal(int(day[-1]) + 1, STATIONS), 0.5)
    mood = np.maximum(1.0 + (0.08 + 0.27 * leisure) * sky[day] + 0.18 * own[day], 0.2)
    bursts = np.maximum(1.0 + 0.25 * draws.normal(len(hours), STATIONS), 0.2)
    rain = 1.0 - (0.30 + 0.35 * leisure) * _wet(hours, draws)
    rate: FloatArray = level * _profiles(local, leisure, draws) * _season(local) * mood * bursts * rain
    counts = _poisson(rate, draws.uniform(len(hours), STATIONS))
    return pd.DataFrame(counts, index=hours, columns=[f"SIMC{number:02}" for number in range(1, STATIONS + 1)])


def _profiles(local: pd.DatetimeIndex, leisure: FloatArray, draws: Draws) -> FloatArray:
    """Relative rate of each hour and station, shape (T, 12): `leisure` is each station's share of leisure trips."""
    morning_share = ((5 * np.arange(STATIONS)) % STATIONS + draws.uniform(STATIONS)) / STATIONS
    hour = local.hour.to_numpy()
    to_work, from_work, for_leisure = (np.array(row)[hour][:, None] for row in (_MORNING, _EVENING, _LEISURE))
    commute = morning_share * to_work + (1.0 - morning_share) * from_work
    workday = (1.0 - leisure) * commute + leisure * for_leisure
    free_day = (0.4 + 1.2 * leisure) * for_leisure
    profiles: FloatArray = np.where(free_days(local, "England"), free_day, workday)
    return profiles


def _season(local: pd.DatetimeIndex) -> FloatArray:
    season: FloatArray = 1.0 - 0.4 * np.cos(2.0 * np.pi * (local.day_of_year.to_numpy() - 20.0) / 365.25)
    return season[:, None]


def _wet(hours: pd.DatetimeIndex, draws: Draws) -> FloatArray:
    """1 in wet hours, else 0, shape (T, 1): showers of some hours within spells of unsettled days."""
    unsettled = autoregressive(draws.normal(len(hours) // 24 + 1, 1), 0.6) > 0.2
    shower = autoregressive(draws.normal(len(hours), 1), 0.85) > 0.2
    return (np.repeat(unsettled, 24, axis=0)[: len(hours)] & shower).astype(np.float64)


def _poisson(rate: FloatArray, uniform: FloatArray) -> FloatArray:
    """Poisson counts by inversion of the distribution function: one uniform number a count."""
    rates, level = rate.ravel(), uniform.ravel()
    counts = np.zeros(rate.size)
    probability = np.exp(-rates)
    cumulative = probability.copy()
    pending = np.flatnonzero(level >= cumulative)
    count = 0
    while len(pending):
        count += 1
        counts[pending] = count
        probability[pending] *= rates[pending] / count
        cumulative[pending] += probability[pending]
        # Rounding may leave the sum below a level next to 1: the terms beyond the mode vanish, and the count stands.
        unfinished = (probability[pending] > 1e-17) | (count < rates[pending])
        pending = pending[(level[pending] >= cumulative[pending]) & unfinished]
    return counts.reshape(rate.shape)
