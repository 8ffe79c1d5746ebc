"""One result row: how one policy fared on one case. Rows are what a run folder stores and what reports read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType, NoneType
from typing import Any

from castgym.envs.outcomes import Outcome
from castgym.evaluation.run_folder import checked_fields

_NUMBER = (int, float, NoneType)
_KINDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("case_id", "group_id", "domain", "family", "cohort", "outcome"), (str,)),
        **dict.fromkeys(("loss", "floor", "R", "S"), _NUMBER),
        "repeat": (int,),
        "credits": (int, NoneType),
        "valid": (bool,),
        "grid_index": (list, tuple, NoneType),
        "calls": (list, tuple),
        "seconds": (int, float),
    }
)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Result of one case and repeat.

    Attributes:
        case_id: the case.
        repeat: number of the repetition, from 0.
        group_id: cluster of the bootstrap.
        domain: `electricity` or `cycle_hire`.
        family: lead, `day_ahead` or `week_ahead`.
        cohort: cohort of the aggregate.
        outcome: how the episode ended.
        valid: a feasible plan was committed.
        fault: why not, a named reason.
        loss: decision loss, invalid penalty included; `None` for `infrastructure_error`.
        floor: loss with known demand, F; `None` for `infrastructure_error`.
        credits: credits charged; `None` for `infrastructure_error`.
        R: normalised excess loss (loss - floor) / sigma; `None` for `infrastructure_error`.
        S: score, 0.5 * (R + credits / budget); `None` for `infrastructure_error`.
        grid_index: committed plan, `None` where invalid.
        answer: final text of the agent.
        calls: tool calls in order: tool, arguments, error kind or None, credits.
        seconds: wall time of the episode.
        error: the infrastructure's fault in words.
    """

    case_id: str
    repeat: int
    group_id: str
    domain: str
    family: str
    cohort: str
    outcome: Outcome
    valid: bool
    fault: str | None
    loss: float | None
    floor: float | None
    credits: int | None
    R: float | None
    S: float | None
    grid_index: tuple[int, ...] | None
    answer: str | None
    calls: tuple[Mapping[str, Any], ...]
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
    def from_json(cls, value: Mapping[str, Any]) -> "ResultRow":
        """Read `to_json`.

        Raises:
            DataError: fields are missing or unknown.
        """
        row = checked_fields(cls, value, _KINDS, "result row")
        row["grid_index"] = None if row["grid_index"] is None else tuple(row["grid_index"])
        return cls(**row)
