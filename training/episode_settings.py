"""Which episodes a run plays: benchmark, data and conditions, as a section of its settings."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from castgym.envs.casesets import EMBEDDED, load_cases
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.sources import DecisionSource, EpisodeSource
from castgym.training.run_config import RunConfig

Role = Literal["train", "held_out"]

SPLITS = {
    "fwbench": {"train": "train", "held_out": "calibration"},
    "castr1": {"train": "train", "held_out": "validation"},
}
"""Splits that training may see: what it learns from, and what it picks its checkpoint by. Never the test split."""


class EpisodeSettings(RunConfig):
    """Episodes of a benchmark.

    Attributes:
        benchmark: `fwbench` (decisions) or `castr1` (forecasts).
        data: `embedded`, or a folder of cases or windows.
        files: folder of the official files of windows.
        datasets: names of the window sets to play; `null` for all.
        stride: rows between the origins of training windows; `null` for every one.
        pool: of `fwbench`: `full` or `no_tsfm`.
        conditions: fields of the episodes' own configuration, such as `prompt_style: compact`.
    """

    benchmark: Literal["fwbench", "castr1"]
    data: str = EMBEDDED
    files: str | None = None
    datasets: list[str] | None = None
    stride: int | None = Field(None, ge=1)
    pool: Literal["full", "no_tsfm"] = "full"
    conditions: dict[str, Any] = Field(default_factory=dict)

    def source(self, role: Role) -> EpisodeSource:
        """The episodes to train on, or those held out.

        Raises:
            CastgymError: data or conditions do not fit.
        """
        split: Any = SPLITS[self.benchmark][role]
        if self.benchmark == "fwbench":
            return DecisionSource(load_cases(self.data), split, pool=self.pool, **self.conditions)
        conditions: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.conditions.items()
        }
        conditions |= {"datasets": self.datasets, "files": self.files}
        return ForecastSource(self.data, split, stride=self.stride if role == "train" else None, **conditions)


def spread_subjects(source: EpisodeSource, count: int | None) -> list[str]:
    """A fixed choice of subjects, evenly from each data set and from the whole of its time.

    Args:
        source: cases or windows.
        count: how many; all with `None`, or where there are no more.
    """
    if count is None or count >= len(source.ids):
        return list(source.ids)
    held: dict[str, list[str]] = {}
    for subject_id in source.ids:
        held.setdefault(source.dataset(subject_id), []).append(subject_id)
    share, extra = divmod(count, len(held))
    chosen: list[str] = []
    for place, members in enumerate(held.values()):
        chosen += _even(members, share + (place < extra))
    return chosen


def _even(members: Sequence[str], count: int) -> list[str]:
    places = np.linspace(0, len(members) - 1, min(count, len(members))).round().astype(int)
    return [members[place] for place in places]
