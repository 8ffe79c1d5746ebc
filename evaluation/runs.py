"""Runs of the decision benchmark: what determines their rows."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from castgym.evaluation.rows import ResultRow
from castgym.evaluation.run_folder import FolderConfig, RunFolder, RunWriter, case_ids_digest, open_folder

__all__ = ["Run", "RunConfig", "case_ids_digest", "open_run"]


@dataclass(frozen=True)
class RunConfig(FolderConfig):
    """Everything that determines a run's rows.

    Attributes:
        case_set: name of the case set.
        tariff: hash of the tariff.
        selection: how cases were chosen from the set.
        whole_index: the chosen cases are the set's whole test split, so the run can be ranked.
        cohort_weights: weights of the aggregate.
        sigma: scale of the excess loss by domain.
        budget: credits of a case, B.
        pool: `full` or `no_tsfm`.
        answer_form: `decisions`, or `plan` (never ranked with it).
        prompt_mode: `memory` or `chat`.
        prompt_style: `full` or `compact`.
        objective: what the prompts ask to minimise; S in the rows is always the official one.
    """

    case_set: str
    tariff: str
    selection: Mapping[str, Any]
    whole_index: bool
    cohort_weights: Mapping[str, float]
    sigma: Mapping[str, float]
    budget: int
    pool: str
    answer_form: str
    prompt_mode: str
    prompt_style: str = "full"
    objective: str = "combined"

    @classmethod
    def kind(cls) -> str:
        """The decision benchmark."""
        return "decisions"


class Run(RunFolder[RunConfig, ResultRow]):
    """A run of the decision benchmark that was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, RunConfig, ResultRow)


def open_run(path: Path, config: RunConfig) -> AbstractContextManager[RunWriter[RunConfig, ResultRow]]:
    """Create a run folder, or continue the run of the same configuration; see `open_folder`."""
    return open_folder(path, config, ResultRow)
