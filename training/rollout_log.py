"""What is said about rollouts: metrics over all processes, and every response on disk, as Parquet."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet  # type: ignore[import-untyped, unused-ignore]

from castgym.training.rollout import Rollout


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """A trajectory without its tokens: what all processes need to know of each other's.

    Attributes:
        subject_id: the case or window.
        reward: the return, NaN where the infrastructure failed.
        error: on the evaluation's scale; infinite where the answer could not be judged, NaN where it was not scored.
        valid: an answer was committed that keeps the rules.
        truncated: a response was cut at the token limit.
        steps: responses.
        prompt_tokens, response_tokens: over all steps.
        first_prompt: hash of the first prompt, `None` where there was none.
        responses: hash of all responses.
    """

    subject_id: str
    reward: float
    error: float
    valid: bool
    truncated: bool
    steps: int
    prompt_tokens: int
    response_tokens: int
    first_prompt: str | None
    responses: str


def summarise(rollout: Rollout) -> RolloutSummary:
    """The summary of a trajectory."""
    turns, score = rollout.turns, rollout.score
    return RolloutSummary(
        rollout.subject_id,
        rollout.reward,
        math.nan if score is None else score.error,
        score is not None and score.valid,
        any(turn.truncated for turn in turns),
        len(turns),
        sum(len(turn.prompt_ids) for turn in turns),
        sum(len(turn.response_ids) for turn in turns),
        _digest(turns[0].prompt_ids) if turns else None,
        _digest([token for turn in turns for token in (*turn.response_ids, -1)]),
    )


def rollout_metrics(summaries: Sequence[RolloutSummary], groups: Sequence[int]) -> dict[str, float]:
    """Means and shares over trajectories that were scored; NaN where there is none.

    Args:
        summaries: (N,) trajectories of all processes.
        groups: (N,) group of each.
    """
    scored = [item for item in summaries if not math.isnan(item.reward)]
    members: dict[int, list[str]] = {}
    for item, group in zip(summaries, groups, strict=True):
        if not math.isnan(item.reward):
            members.setdefault(group, []).append(item.responses)
    repeated = sum(len(group) - len(set(group)) for group in members.values())
    responses = sum(item.steps for item in scored)
    errors = [item.error for item in scored if math.isfinite(item.error)]
    return {
        "reward": _mean([item.reward for item in scored]),
        "error": _mean(errors),
        "invalid_share": _mean([not item.valid for item in scored]),
        "truncated_share": _mean([item.truncated for item in scored]),
        "repeated_share": repeated / len(scored) if scored else math.nan,
        "steps": _mean([item.steps for item in scored]),
        "prompt_tokens": sum(item.prompt_tokens for item in scored) / responses if responses else math.nan,
        "response_tokens": sum(item.response_tokens for item in scored) / responses if responses else math.nan,
    }


def write_rollouts(
    path: Path,
    rollouts: Sequence[Rollout],
    groups: Sequence[int],
    texts: Sequence[Sequence[str]],
    advantages: npt.NDArray[np.float64] | None = None,
    kept: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Write one row a response, with the exact ids; a trajectory without a response has one row with turn -1.

    Args:
        path: Parquet file to write.
        rollouts: (N,) trajectories.
        groups: (N,) group of each.
        texts: (N,) the texts of its responses.
        advantages: (N,) advantage of each; none in evaluation.
        kept: (N,) whether it was trained on; none in evaluation.
    """
    records: list[Mapping[str, Any]] = []
    for index, rollout in enumerate(rollouts):
        shared = {
            "subject_id": rollout.subject_id,
            "group": groups[index],
            "member": index,
            "outcome": rollout.outcome,
            "fault": rollout.fault,
            "reward": rollout.reward,
            "error": math.nan if rollout.score is None else rollout.score.error,
            "valid": rollout.score is not None and rollout.score.valid,
            "advantage": math.nan if advantages is None else float(advantages[index]),
            "kept": kept is not None and bool(kept[index]),
        }
        records += [
            {
                **shared,
                "turn": number,
                "truncated": turn.truncated,
                "response": text,
                "prompt_ids": turn.prompt_ids,
                "response_ids": turn.response_ids,
                "logprobs": turn.logprobs,
            }
            for number, (turn, text) in enumerate(zip(rollout.turns, texts[index], strict=True))
        ] or [{**shared, "turn": -1}]
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records, schema=_SCHEMA), path)


_SCHEMA = pyarrow.schema(
    [
        ("subject_id", pyarrow.string()),
        ("group", pyarrow.int32()),
        ("member", pyarrow.int32()),
        ("turn", pyarrow.int32()),
        ("outcome", pyarrow.string()),
        ("fault", pyarrow.string()),
        ("reward", pyarrow.float64()),
        ("error", pyarrow.float64()),
        ("valid", pyarrow.bool_()),
        ("advantage", pyarrow.float64()),
        ("kept", pyarrow.bool_()),
        ("truncated", pyarrow.bool_()),
        ("response", pyarrow.string()),
        ("prompt_ids", pyarrow.list_(pyarrow.int32())),
        ("response_ids", pyarrow.list_(pyarrow.int32())),
        ("logprobs", pyarrow.list_(pyarrow.float32())),
    ]
)


def _digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(np.asarray(ids, dtype=np.int64).tobytes()).hexdigest()


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
