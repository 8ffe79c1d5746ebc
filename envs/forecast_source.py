"""Forecasting episodes of one split, and their scores: joins windows with the truth, which no episode holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from castgym.data.errors import ConfigError
from castgym.data.files import sha256_hex
from castgym.data.windows import WINDOW_SPLITS, WindowSplit
from castgym.data.windows_set import WindowSet
from castgym.envs.core import AgentEpisode
from castgym.envs.forecast_answers import canonical_timestamp
from castgym.envs.forecast_config import ForecastConfig
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.forecast_reward import (
    PenaltySettings,
    RewardWeights,
    copied_timestamps_penalty,
    forecast_reward,
    unprepared_penalty,
)
from castgym.envs.sources import EpisodeScore
from castgym.envs.windowsets import LoadedWindows, load_windows
from castgym.tools.forecasters.window_pool import WindowForecasterPool, shared_window_pool
from castgym.tools.forecasting_tools import timestamp_text

Windows = str | Path | WindowSet | Sequence[WindowSet] | LoadedWindows
"""How window sets may be given."""

INVALID_ERROR = float("inf")
"""Error of an answer that could not be judged."""


class ForecastSource:
    """Episodes of windows.

    The error of an episode is the MSE on the raw scale over the whole horizon, infinite where the answer does not cover
    it. Its reward is Cast-R1's (Equation 6), with the optional penalties and bonuses added.

    Args:
        windows: a window set or several, `embedded`, or a folder with a manifest.
        split: windows to play.
        stride: rows between origins; by default every origin in training, else horizons that do not overlap.
        datasets: names of the sets to play; all by default.
        files: folder of the official files, where `windows` is a folder.
        forecasters: pool of forecasters; the process's own by default.
        weights: weights of the reward's terms.
        strict_alignment: superfluous extrema lower the reward's alignment (see `forecast_reward`).
        penalties: penalties and bonus of the public implementation; none by default.
        conditions: further fields of `ForecastConfig`. `models` is by default the paper's pool, or for the embedded
            sets what runs offline.

    Raises:
        ConfigError: a setting, data set or forecaster is unknown, or no window is left.
        ForecasterUnavailableError: package, weights or checkpoint of a forecaster are missing.
    """

    def __init__(
        self,
        windows: Windows,
        split: WindowSplit,
        *,
        stride: int | None = None,
        datasets: Sequence[str] | None = None,
        files: str | Path | None = None,
        forecasters: WindowForecasterPool | None = None,
        weights: RewardWeights | None = None,
        strict_alignment: bool = False,
        penalties: PenaltySettings | None = None,
        **conditions: Any,
    ) -> None:
        self.loaded = loaded_windows(windows, files).only(datasets)
        if split not in WINDOW_SPLITS:
            raise ConfigError(f"expected split in {WINDOW_SPLITS}, found {split!r}")
        self._split: WindowSplit = split
        self._stride = stride
        self._pool = forecasters or shared_window_pool()
        if conditions.get("models") is None:
            conditions["models"] = self.loaded.default_models(self._pool)
        self.config = ForecastConfig(**conditions)
        for item in self.loaded.sets:
            self._pool.require(self.config.models, item)
        self._weights = weights
        self._strict = strict_alignment
        self.penalties = penalties or PenaltySettings()
        if not self.ids:
            raise ConfigError(f"{self.name}: the {split} split has no window at a stride of {stride}")

    @property
    def name(self) -> str:
        """Names of the window sets."""
        return self.loaded.name

    @property
    def split(self) -> str:
        """The split."""
        return self._split

    @cached_property
    def fingerprint(self) -> str:
        """Content hash of the sets, truth and rule of windows included."""
        return sha256_hex(*(item.fingerprint.encode() for item in self.loaded.sets))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Window ids, set by set in the order of time."""
        return tuple(
            f"{item.name}-{self._split}-{origin:%Y-%m-%dT%H:%M}"
            for item in self.loaded.sets
            for origin in item.origins(self._split, stride=self._stride)
        )

    def dataset(self, subject_id: str) -> str:
        """The data set of a window."""
        return self.loaded.find(subject_id)[0].name

    def episode(self, subject_id: str) -> ForecastEpisode:
        """A new episode of a window.

        Raises:
            ConfigError: there is no such window.
        """
        return self._made(subject_id, ForecastEpisode)

    def continued(self, state: Mapping[str, Any]) -> ForecastEpisode:
        """A saved episode.

        Raises:
            ConfigError: there is no such window.
            DataError: the state is damaged, or belongs to other conditions.
        """
        return self._made(
            str(state.get("subject_id")),
            lambda window, config, pool, past: ForecastEpisode.from_state(state, window, config, pool, past),
        )

    def score(self, episode: AgentEpisode) -> EpisodeScore:
        """Judge an ended episode.

        Raises:
            TypeError: the episode is of another kind.
        """
        if not isinstance(episode, ForecastEpisode):
            raise TypeError(f"expected an episode of a window, found {type(episode).__name__}")
        actual, end = self.loaded.target(episode.subject_id).actual, episode.end
        values = None if end.submission is None else end.submission["values"]
        reward = forecast_reward(values, actual, self._weights, strict_alignment=self._strict)
        valid = end.outcome == "completed"
        mse, mae = _errors(values, actual) if valid and values is not None else (INVALID_ERROR, INVALID_ERROR)
        penalty = self._penalty(episode)
        bonus = self.penalties.useful_call * episode.useful_steps
        parts = {
            "outcome": end.outcome,
            "fault": None if valid else end.rejection or end.outcome,
            "mse": mse if np.isfinite(mse) else None,
            "mae": mae if np.isfinite(mae) else None,
            "reward": asdict(reward),
            "penalty": penalty,
            "bonus": bonus,
            "steps": episode.turns,
        }
        return EpisodeScore(reward.total + penalty + bonus, mse, valid, parts)

    def _made(self, subject_id: str, make: Callable[..., ForecastEpisode]) -> ForecastEpisode:
        item, split, origin = self.loaded.find(subject_id)
        if split != self._split:
            raise ConfigError(f"{subject_id} belongs to the {split} split: expected a window of {self._split}")
        window = item.window(split, origin)
        return make(window, self.config, self._pool, self.loaded.past(window, self.config.backtests))

    def _penalty(self, episode: ForecastEpisode) -> float:
        end, memory, window = episode.end, episode.memory, episode.window
        if end.submission is None:
            return 0.0
        shown = [canonical_timestamp(timestamp_text(time)) for time in window.history_times]
        copied = copied_timestamps_penalty(
            end.submission.get("timestamps", ()), [stamp for stamp in shown if stamp is not None], self.penalties
        )
        return copied + unprepared_penalty(len(memory.analysis), len(memory.predictions), self.penalties)


def _errors(values: Sequence[float], actual: np.ndarray[Any, Any]) -> tuple[float, float]:
    """MSE and MAE on the raw scale (Cast-R1, Appendix A.5)."""
    with np.errstate(over="ignore"):
        miss = np.asarray(values, dtype=np.float64) - actual
        return float(np.mean(miss**2)), float(np.mean(np.abs(miss)))


def loaded_windows(windows: Windows, files: str | Path | None = None) -> LoadedWindows:
    """Window sets, however they are given.

    Raises:
        DataError: a folder holds no manifest, a file is missing, or a set is not the one that was saved.
    """
    if isinstance(windows, LoadedWindows):
        return windows
    if isinstance(windows, WindowSet):
        return LoadedWindows((windows,), "memory")
    if isinstance(windows, str | Path):
        return load_windows(windows, files)
    return LoadedWindows(tuple(windows), "memory")
