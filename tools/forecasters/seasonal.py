"""Empirical quantiles of past values at the same hour of the week."""

import numpy as np

from castgym.tools.forecasters.base import QUANTILE_LEVELS, FloatArray, ForecasterInfo

WEEK = 168

INFO = ForecasterInfo(
    name="seasonal_empirical",
    notes="Quantiles of past values at the same hour of the week; no learning.",
    min_context=WEEK,
)


class SeasonalEmpirical:
    """The protocol's `seasonal_empirical` model: step h uses the past values at the same hour of the week."""

    @property
    def info(self) -> ForecasterInfo:
        """Name and notes."""
        return INFO

    def predict(self, context: FloatArray, horizon: int) -> FloatArray:
        """Inverted-CDF quantiles of the context values in phase with each step; shape (N, H, 9).

        Raises:
            ValueError: fewer than 168 observations.
        """
        length = context.shape[1]
        if length < WEEK:
            raise ValueError(f"seasonal_empirical needs at least {WEEK} observations, found {length}")
        steps = np.arange(min(horizon, WEEK))
        phase = (length + steps) % WEEK
        counts = (length - phase + WEEK - 1) // WEEK
        cycle = np.empty((len(context), len(steps), len(QUANTILE_LEVELS)))
        for count in np.unique(counts):
            same = counts == count
            values = np.sort(context[:, phase[same][:, None] + WEEK * np.arange(count)], axis=-1)
            # The inverted CDF: the smallest value with at least the level's share at or below it.
            rank = np.ceil(np.asarray(QUANTILE_LEVELS) * count - 1e-9).astype(int) - 1
            cycle[:, same] = values[:, :, rank]
        return cycle[:, np.arange(horizon) % WEEK]
