"""Simulated electricity demand: 24 authorities in six climates.

Demand = level x (calendar shape + heating + cooling) x (1 + deviations). Temperature has a yearly and a daily cycle
and weather that lasts for days and is mostly shared within a climate. The calendar shape mixes homes and workplaces;
holidays look like Sundays. The level drifts and at times shifts for weeks. Deviations are slow, daily and hourly, and
each day leans its own way between its hours. Sizes were set on the EIA-930 record of 2021 to 2023 (docs/data.md).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from castgym.data.simulate_calendar import free_days
from castgym.data.simulate_parts import Draws, FloatArray, autoregressive, hourly

SERIES_PER_CLIMATE = 4

_STREAM = 82  # with it, seed 0 has test cohorts of ordinary difficulty


@dataclass(frozen=True, slots=True)
class Climate:
    """Weather of a region.

    Attributes:
        timezone: calendar of its days.
        mean: yearly mean temperature, degrees C.
        annual: half the difference between summer and winter.
        daily: half the difference between afternoon and night.
        weather: standard deviation of day-to-day weather in winter; in summer it is `calm` times that.
        calm: see `weather`.
    """

    timezone: str
    mean: float
    annual: float
    daily: float
    weather: float
    calm: float


CLIMATES: tuple[Climate, ...] = (
    Climate("America/New_York", 20.0, 8.0, 5.0, 4.5, 0.45),
    Climate("America/New_York", 11.0, 13.0, 5.0, 5.0, 0.65),
    Climate("America/Chicago", 9.0, 16.0, 5.5, 6.0, 0.60),
    Climate("America/Chicago", 19.0, 10.5, 6.0, 5.5, 0.50),
    Climate("America/Phoenix", 22.0, 11.0, 7.5, 3.5, 0.75),
    Climate("America/Los_Angeles", 11.5, 7.5, 5.0, 3.2, 1.00),
)
"""Humid south-east, north-east, continental north, southern plains, desert, north-west coast."""

# Demand by local hour relative to its daily mean, before any heating or cooling.
_HOME = (0.83, 0.77, 0.74, 0.73, 0.76, 0.85, 0.99, 1.06, 1.04, 1.00, 0.97, 0.95,
         0.94, 0.92, 0.92, 0.97, 1.05, 1.17, 1.25, 1.26, 1.22, 1.14, 1.03, 0.92)  # fmt: skip
_WORK = (0.86, 0.84, 0.83, 0.83, 0.85, 0.90, 0.97, 1.05, 1.09, 1.11, 1.12, 1.13,
         1.13, 1.13, 1.12, 1.11, 1.09, 1.06, 1.04, 1.02, 1.00, 0.97, 0.93, 0.89)  # fmt: skip
_HEATING_BELOW = 15.0
_COOLING_ABOVE = 19.0


def simulate_electricity(hours: pd.DatetimeIndex, seed: int) -> pd.DataFrame:
    """Hourly demand of all authorities in MW, whole numbers.

    Args:
        hours: consecutive UTC hour starts, beginning at 00:00.
        seed: random seed, >= 0.

    Returns:
        Shape (T, 24), float64, columns `SIME01` to `SIME24`; neighbours of four share a climate.
    """
    parts = [_climate_demand(hours, climate, Draws(seed, _STREAM, place)) for place, climate in enumerate(CLIMATES)]
    values = np.round(np.concatenate(parts, axis=1))
    return pd.DataFrame(values, index=hours, columns=[f"SIME{number:02}" for number in range(1, values.shape[1] + 1)])


def _climate_demand(hours: pd.DatetimeIndex, climate: Climate, draws: Draws) -> FloatArray:
    """Demand of the four authorities of a climate before rounding, shape (T, 4)."""
    local = hours.tz_convert(climate.timezone)
    temperature = _temperature(local, climate, draws)
    steps = (np.arange(SERIES_PER_CLIMATE) + draws.uniform(SERIES_PER_CLIMATE)) / SERIES_PER_CLIMATE
    size = 10.0 ** (2.2 + 2.2 * steps)  # from about 160 to 25,000 MW
    home_share = 0.25 + 0.6 * draws.uniform(SERIES_PER_CLIMATE)
    per_cold_degree = 0.008 + 0.034 * draws.uniform(SERIES_PER_CLIMATE)
    per_hot_degree = 0.030 + 0.032 * draws.uniform(SERIES_PER_CLIMATE)
    heating = per_cold_degree * np.maximum(_HEATING_BELOW - temperature, 0.0)
    cooling = per_hot_degree * np.maximum(temperature - _COOLING_ABOVE, 0.0)
    deviations = _deviations(local, draws)
    level = size * _drift(len(hours), draws)
    demand: FloatArray = level * (_calendar_shape(local, home_share) + heating + cooling) * (1.0 + deviations)
    return demand


def _temperature(local: pd.DatetimeIndex, climate: Climate, draws: Draws) -> FloatArray:
    """Temperature at each authority, shape (T, 4), degrees C."""
    days = _days(local)
    hour = local.hour.to_numpy()
    season = -np.cos(2.0 * np.pi * (local.day_of_year.to_numpy() + hour / 24.0 - 25.0) / 365.25)
    cycle = -np.cos(2.0 * np.pi * (hour - 4.5) / 24.0)
    front = autoregressive(draws.normal(days, 1), 0.65)
    spell = autoregressive(draws.normal(days, 1), 0.93)
    own = autoregressive(draws.normal(days, SERIES_PER_CLIMATE), 0.65)
    within_day = autoregressive(draws.normal(len(local), 1), 0.93)
    weather = hourly(0.9 * front + 0.6 * spell + 0.35 * own, len(local)) + 0.25 * within_day
    spread = climate.weather * (1.0 + climate.calm - (1.0 - climate.calm) * season) / 2.0
    steady = climate.mean + climate.annual * season + 0.8 * climate.daily * cycle
    temperature: FloatArray = steady[:, None] + spread[:, None] * weather
    return temperature


def _calendar_shape(local: pd.DatetimeIndex, home_share: FloatArray) -> FloatArray:
    """Demand of each hour without heating and cooling, relative to a workday's mean, shape (T, 4)."""
    hour = local.hour.to_numpy()
    home, work = np.array(_HOME)[hour][:, None], np.array(_WORK)[hour][:, None]
    workday = home_share * home + (1.0 - home_share) * work
    # On a free day people rise later and workplaces rest: that part is flatter, and the whole is lower.
    late_home = 0.5 * home + 0.5 * np.array(_HOME)[(hour - 1) % 24][:, None]
    free_day = home_share * late_home + (1.0 - home_share) * (0.4 * work + 0.6)
    rests = free_days(local, "United States")
    shape: FloatArray = np.where(rests, free_day * (0.98 - 0.08 * (1.0 - home_share)), workday)
    return shape


def _deviations(local: pd.DatetimeIndex, draws: Draws) -> FloatArray:
    """Relative deviations that neither calendar nor temperature explain, shape (T, 4)."""
    days = _days(local)
    restless = 0.5 + draws.uniform(SERIES_PER_CLIMATE)
    slow = hourly(autoregressive(draws.normal(days, SERIES_PER_CLIMATE), 0.96), len(local))
    daily = hourly(autoregressive(draws.normal(days, SERIES_PER_CLIMATE), 0.5), len(local))
    lean = hourly(autoregressive(draws.normal(days, 2 * SERIES_PER_CLIMATE), 0.6), len(local))
    noise = autoregressive(draws.normal(len(local), SERIES_PER_CLIMATE), 0.7)
    angle = (2.0 * np.pi / 24.0 * local.hour.to_numpy())[:, None]
    morning, noon = lean[:, :SERIES_PER_CLIMATE], lean[:, SERIES_PER_CLIMATE:]
    leaning = 0.022 * (morning * np.cos(angle) + noon * np.sin(angle))
    deviations: FloatArray = restless * (0.022 * slow + 0.022 * daily + 0.011 * noise) + leaning
    return deviations


def _drift(hours: int, draws: Draws) -> FloatArray:
    """Growth of -1 to 2 percent a year, and shifts of several percent that fade over weeks, shape (T, 4)."""
    growth = 0.03 * draws.uniform(SERIES_PER_CLIMATE) - 0.01
    days = hours // 24 + 2
    starts = draws.uniform(days, SERIES_PER_CLIMATE) < 1.0 / 150.0
    size = 0.04 * draws.normal(days, SERIES_PER_CLIMATE)
    shift = np.zeros((days, SERIES_PER_CLIMATE))
    for day in range(1, days):
        shift[day] = np.where(starts[day], size[day], shift[day - 1] * 0.985)
    years = (np.arange(hours) / 8766.0)[:, None]
    drift: FloatArray = (1.0 + growth * years) * (1.0 + np.repeat(shift, 24, axis=0)[:hours])
    return drift


def _days(hours: pd.DatetimeIndex) -> int:
    """Daily values that `hourly` needs to reach the last hour."""
    return len(hours) // 24 + 2
