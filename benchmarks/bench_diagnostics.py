"""Time of the five diagnostic tools on one window of 168 steps and 7 channels, once warm (target: under 30 ms).

Two tools are also written the plain way in pandas, column by column, and timed in the same run after a check that both
ways agree.
"""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from castgym.tools.diagnostics import (
    extract_basic_statistics,
    extract_data_quality,
    extract_event_summary,
    extract_forecast_residuals,
    extract_within_channel_dynamics,
)
from castgym.tools.diagnostics.basic_statistics import QUANTILE_LEVELS
from castgym.tools.diagnostics.quality import QUANTISATION_BINS, SATURATION_MARGIN

TOOLS = (
    extract_data_quality,
    extract_basic_statistics,
    extract_within_channel_dynamics,
    extract_event_summary,
    extract_forecast_residuals,
)
TARGET_MS = 30.0


def best_ms(action: Callable[[], object], repeats: int = 30) -> float:
    """The least wall time after one warm call, milliseconds: the machine may be busy with other work."""
    action()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def window() -> np.ndarray:
    """Daily cycles, noise, a level shift in the target and a few gaps."""
    rng = np.random.default_rng(0)
    steps = np.arange(168)[:, None]
    values = 10 + 3 * np.sin(2 * np.pi * steps / 24 + np.arange(7)) + rng.normal(size=(168, 7))
    values[100:, 0] += 6
    values[rng.random(values.shape) < 0.02] = np.nan
    return values


def pandas_quality(values: np.ndarray) -> list[tuple[float, ...]]:
    rows = []
    frame = pd.DataFrame(values)
    for number in frame.columns:
        column = frame[number]
        gaps = column.isna()
        longest = gaps.astype(int).groupby((~gaps).cumsum()).sum().max()
        seen = column.dropna()
        span = seen.max() - seen.min()
        bins = pd.cut(seen, QUANTISATION_BINS).value_counts(normalize=True).max()
        near = (seen <= seen.min() + SATURATION_MARGIN * span) | (seen >= seen.max() - SATURATION_MARGIN * span)
        rows.append((gaps.mean(), float(longest), bins, near.mean()))
    return rows


def pandas_statistics(values: np.ndarray) -> list[tuple[float, ...]]:
    frame = pd.DataFrame(values)
    rows = []
    for number in frame.columns:
        column = frame[number]
        centred = column - column.mean()
        octile = [column.quantile(eighth / 8) for eighth in range(1, 8)]
        rows.append(
            (
                column.mean(),
                column.median(),
                column.std(ddof=0),
                centred.abs().mean(),
                (column - column.median()).abs().median(),
                column.min(),
                column.max(),
                *(column.quantile(level) for level in QUANTILE_LEVELS),
                (centred * centred.shift(1)).sum() / (centred**2).sum(),
                (centred * centred.shift(24)).sum() / (centred**2).sum(),
                centred.dropna().cumsum().abs().max() / (column.std(ddof=0) * np.sqrt(column.count())),
                ((octile[6] - octile[4]) + (octile[2] - octile[0])) / (octile[5] - octile[1]),
                column.corr(frame[0]),
            )
        )
        filled = centred.interpolate(limit_direction="both")
        np.abs(np.fft.rfft(filled - filled.mean())) ** 2  # the spectrum's share of the work
    return rows


def main() -> None:
    values = window()
    each = {tool.__name__: best_ms(lambda tool=tool: tool(values)) for tool in TOOLS}
    for name, spent in each.items():
        print(f"{name}: {spent:.2f} ms")
    whole = best_ms(lambda: [tool(values) for tool in TOOLS])
    texts = best_ms(lambda: [tool(values).summary() for tool in TOOLS])
    verdict = "met" if whole < TARGET_MS else "MISSED"
    print(f"all five on 168 x 7: {whole:.1f} ms, with summaries {texts:.1f} ms (target {TARGET_MS:.0f} ms: {verdict})")

    quality = [
        (item.missing_ratio, item.longest_gap, item.quantisation, item.saturation)
        for item in extract_data_quality(values).channels
    ]
    np.testing.assert_allclose(pandas_quality(values), quality)
    statistics = [
        (
            *(item.mean, item.median, item.std, item.mean_absolute_deviation, item.median_absolute_deviation),
            *(item.minimum, item.maximum, *(item.quantiles or ()), item.acf_1, item.acf_season, item.cusum_max),
            *(item.quantile_kurtosis, 1.0 if item.target_correlation is None else item.target_correlation),
        )
        for item in extract_basic_statistics(values).channels
    ]
    np.testing.assert_allclose(pandas_statistics(values), statistics)
    for name, plain in (
        ("extract_data_quality", pandas_quality),
        ("extract_basic_statistics", pandas_statistics),
    ):
        spent = best_ms(lambda plain=plain: plain(values), 10)
        print(f"{name}: {spent:.1f} ms in plain pandas, ratio {spent / each[name]:.0f}")


if __name__ == "__main__":
    main()
