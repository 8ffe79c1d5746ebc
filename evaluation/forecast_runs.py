"""Runs of the forecasting benchmark: one row a window and repeat, and what determines the rows."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

from castgym.envs.outcomes import Outcome
from castgym.evaluation.run_folder import FolderConfig, RunFolder, RunWriter, checked_fields, open_folder

_NUMBER = (int, float, NoneType)
_KINDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("case_id", "dataset", "origin", "outcome"), (str,)),
        **dict.fromkeys(("mse", "mae", "reward"), _NUMBER),
        **dict.fromkeys(("answer", "fault", "error"), (str, NoneType)),
        "repeat": (int,),
        "turns": (int,),
        "valid": (bool,),
        "calls": (list, tuple),
        "seconds": (int, float),
    }
)


@dataclass(frozen=True)
class ForecastRunConfig(FolderConfig):
    """Everything that determines a run's rows.

    Attributes:
        window_sets: fingerprint of each data set.
        selection: how windows were chosen: split, stride, data sets, limit.
        conditions: conditions of the episodes.
    """

    window_sets: Mapping[str, str]
    selection: Mapping[str, Any]
    conditions: Mapping[str, Any]

    @classmethod
    def kind(cls) -> str:
        """The forecasting benchmark."""
        return "forecasts"


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """Result of one window and repeat.

    Attributes:
        case_id: the window.
        repeat: number of the repetition, from 0.
        dataset: its data set.
        origin: time of the first step to forecast, ISO 8601.
        outcome: how the episode ended.
        valid: a forecast was committed that could be judged.
        fault: why not, a named reason.
        mse: mean squared error on the raw scale (Cast-R1, A.5); of a fallback where `valid` is false (see
            `castgym.evaluation.forecast_runner`), `None` for `infrastructure_error`.
        mae: mean absolute error, likewise.
        reward: terminal reward; `None` for `infrastructure_error`.
        turns: responses of the policy.
        calls: tool calls in order: tool, arguments, error kind or None.
        answer: final text of the agent.
        seconds: wall time of the episode.
        error: the infrastructure's fault in words.
    """

    case_id: str
    repeat: int
    dataset: str
    origin: str
    outcome: Outcome
    valid: bool
    fault: str | None
    mse: float | None
    mae: float | None
    reward: float | None
    turns: int
    calls: tuple[Mapping[str, Any], ...]
    answer: str | None
    seconds: float
    error: str | None = None

    @property
    def scored(self) -> bool:
        """The row enters averages: everything but the infrastructure's faults."""
        return self.outcome != "infrastructure_error"

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ForecastRow":
        """Read `to_json`.

        Raises:
            DataError: fields are missing, unknown, or of another kind.
        """
        return cls(**checked_fields(cls, value, _KINDS, "forecast row"))


class ForecastRun(RunFolder[ForecastRunConfig, ForecastRow]):
    """A run of the forecasting benchmark that was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ForecastRunConfig, ForecastRow)


def open_forecast_run(
    path: Path, config: ForecastRunConfig
) -> AbstractContextManager[RunWriter[ForecastRunConfig, ForecastRow]]:
    """Create a run folder, or continue the run of the same configuration; see `open_folder`."""
    return open_folder(path, config, ForecastRow)
