"""The embedded window sets: simulated, so that everything runs without a file and without network.

One set of each kind of the real ones, small. Values are rounded to hundredths, so that the same seed gives the same
bits on every machine (see `simulate_parts`).
"""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd

from castgym.data.schema import FloatArray
from castgym.data.simulate_calendar import free_days
from castgym.data.simulate_parts import Draws, autoregressive
from castgym.data.windows_context import HolidayRegion, MarketContext
from castgym.data.windows_set import WindowSet

_HOUR = timedelta(hours=1)
_QUARTER = timedelta(minutes=15)
_LOADS = ("load_a", "load_b", "load_c", "load_d", "load_e", "load_f")


def simulated_windows(seed: int = 0) -> list[WindowSet]:
    """Simulate `SIM_temperature`, `SIM_price` and `SIM_wind`.

    * `SIM_temperature`: like ETTh: 100 days of hours, six loads and the temperature of what they heat.
    * `SIM_price`: like EPF: 120 days of hours, load and renewable power known a day ahead, prices sometimes negative.
    * `SIM_wind`: like Wind: 32 days of quarter hours, forecast and measured wind speed, power between 0 and 100.

    Args:
        seed: >= 0.

    Returns:
        The sets, in this order. Takes less than a second.
    """
    return [_temperature(seed), _price(seed), _wind(seed)]


def _hundredths(columns: list[FloatArray]) -> FloatArray:
    """Columns of shape (T,) side by side, rounded to hundredths."""
    rounded: FloatArray = np.rint(np.column_stack(columns) * 100.0) / 100.0 + 0.0  # no negative zero
    return rounded


def _smooth(draws: Draws, rows: int, memory: float, columns: int = 1) -> FloatArray:
    return autoregressive(draws.normal(rows, columns), memory)


def _wave(rows: int, period: float, peak: float) -> FloatArray:
    """A cosine of a period in rows with its first maximum at row `peak`."""
    wave: FloatArray = np.cos(2.0 * np.pi * (np.arange(rows) - peak) / period)
    return wave


def _temperature(seed: int) -> WindowSet:
    rows = 2400
    draws = Draws(seed, 0)
    day = _wave(rows, 24.0, 19.0)
    common = _smooth(draws, rows, 0.95)[:, 0]
    own = _smooth(draws, rows, 0.7, len(_LOADS))
    loads = [4.0 + number + (1.5 + 0.2 * number) * day + common + own[:, number] for number in range(len(_LOADS))]
    drift = 6.0 * _wave(rows, 24.0 * 70.0, 800.0) - 0.002 * np.arange(rows)
    heat = 0.8 * _wave(rows, 24.0, 21.0) * (1.0 + 0.2 * common)  # the oil follows the load with a delay
    oil = 22.0 + drift + 2.0 * heat + 1.5 * _smooth(draws, rows, 0.97)[:, 0]
    return WindowSet(
        name="SIM_temperature",
        start=datetime(2021, 1, 4),
        step=_HOUR,
        channels=("temperature", *_LOADS),
        values=_hundredths([oil, *loads]),
        length=96,
        horizon=96,
        ratio=(6, 2, 2),
        unit="degrees Celsius",
        source={"kind": "simulated", "seed": seed},
    )


def _price(seed: int) -> WindowSet:
    rows = 120 * 24
    draws = Draws(seed, 1)
    start = datetime(2021, 3, 1)
    times = pd.date_range(start, periods=rows, freq=_HOUR)
    free = free_days(times, "Germany")[:, 0].astype(np.float64)
    load = 55.0 + 6.0 * _wave(rows, 24.0, 12.0) + 4.0 * _wave(rows, 12.0, 7.0) - 8.0 * free
    load = load + 2.0 * _smooth(draws, rows, 0.97)[:, 0]
    sun = np.maximum(_wave(rows, 24.0, 13.0), 0.0) * 14.0
    wind = 9.0 * np.exp(0.7 * _smooth(draws, rows, 0.985)[:, 0])
    renewable = sun + wind
    residual = load - renewable
    price = 36.0 + 1.8 * (residual - 33.0) + 4.0 * _smooth(draws, rows, 0.9)[:, 0]
    price = np.where(price < 0, 1.5 * price, price)  # plants that cannot stop pay to run
    market = MarketContext(
        "simulated market, hourly day-ahead price",
        "EUR/MWh",
        "day-ahead forecasts of load and of renewable power (GW)",
        (HolidayRegion("Germany", "DE"),),
    )
    return WindowSet(
        name="SIM_price",
        start=start,
        step=_HOUR,
        channels=("price", "load_forecast", "renewable_forecast"),
        values=_hundredths([price, load, renewable]),
        length=168,
        horizon=24,
        ratio=(7, 1, 2),
        known=("load_forecast", "renewable_forecast"),
        align=24,
        unit=market.unit,
        market=market,
        source={"kind": "simulated", "seed": seed},
    )


def _wind(seed: int) -> WindowSet:
    rows = 32 * 96
    draws = Draws(seed, 2)
    weather = _smooth(draws, rows, 0.995)[:, 0]
    speed = np.maximum(6.5 + 2.8 * weather + 0.8 * _wave(rows, 96.0, 60.0) + 0.4 * _smooth(draws, rows, 0.8)[:, 0], 0.0)
    forecast = np.maximum(speed + 1.0 * _smooth(draws, rows, 0.98)[:, 0], 0.0)
    power = 100.0 * np.clip((speed - 3.0) / 9.0, 0.0, 1.0) ** 3  # still below 3 m/s, full from 12 m/s
    power = np.clip(power + 1.5 * draws.normal(rows), 0.0, 100.0)
    return WindowSet(
        name="SIM_wind",
        start=datetime(2021, 9, 1),
        step=_QUARTER,
        channels=("power", "forecast_speed", "measured_speed"),
        values=_hundredths([power, forecast, speed]),
        length=96,
        horizon=96,
        ratio=(7, 1, 2),
        unit="% of capacity",
        source={"kind": "simulated", "seed": seed},
    )
