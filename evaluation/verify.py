"""Verification of a finished run: nothing that it states needs to be believed.

Three depths, each including the one before:

* `scores`: the configuration against the case set; the ledger of every row from its calls and the tariff; the answer
  read again; loss, floor, R and S from the truth. No forecaster runs.
* `actions`: every saved call is executed again, in its order, in a new episode.
* `episodes`: where the run kept its episodes, every prompt and every result must come out the same, byte for byte.

This shows that the results follow from the saved actions, not that a certain model took them; and rows without their
episodes could have lost a call. What cannot be repeated is counted, not passed over: a call that a failing forecaster
ended (its charge is checked), and an episode that the infrastructure lost (which no ranked run may have).
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import canonical_json, sha256_hex
from castgym.data.schema import Case
from castgym.data.tariff import Tariff
from castgym.envs.casesets import LoadedCases
from castgym.envs.core import AgentEpisode
from castgym.envs.episode import MAX_CALLS, Episode, EpisodeConfig, pool_models
from castgym.envs.memory import PREDICTION_TOOLS
from castgym.envs.messages import Response
from castgym.envs.scoring import Score, score_submission
from castgym.envs.trajectory import ReplayMismatchError, Trajectory, replay
from castgym.evaluation.rows import ResultRow
from castgym.evaluation.runs import Run, case_ids_digest
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import ForecasterPool
from castgym.tools.planning.contract import CapacityContract

Depth = Literal["scores", "actions", "episodes"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)

TOLERANCE = 1e-9
"""Relative and absolute, of loss, floor, R and S: another processor may differ in a last digit."""

_CHARGED_ERRORS = ("horizon_too_short", "backend_error")
"""Faults of a call that come after its charge."""

_UNREADABLE = {"role": "assistant", "tool_calls": ["unreadable"]}
"""A response that counts as a call which could not be read."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that a run states and that comes out otherwise.

    Attributes:
        where: the episode (case and repeat), or the file.
        what: the thing.
        saved: what the run states.
        found: what comes out.
    """

    where: str
    what: str
    saved: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: saved {_short(self.saved)}, found {_short(self.found)}"


@dataclass(slots=True)
class Verification:
    """What was verified, and what came out otherwise.

    Attributes:
        path: the run folder.
        rows: rows of the run.
        checked: scored rows by the depth to which they were verified.
        unrepeatable: rows with a call that a failing forecaster ended; verified to depth `scores`.
        lost: rows of infrastructure errors.
        mismatches: everything that differs.
        notes: what kept a row from a greater depth.
    """

    path: Path
    rows: int
    checked: Counter[Depth] = field(default_factory=Counter)
    unrepeatable: int = 0
    lost: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing differs."""
        return not self.mismatches


def verify_run(
    path: Path,
    loaded: LoadedCases,
    pool: ForecasterPool,
    *,
    depth: Depth = "episodes",
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Verify a complete run of the decision benchmark.

    Args:
        path: the run folder.
        loaded: its case set, with the truth.
        pool: forecasters, for the depths above `scores`.
        depth: how deep to go where the run allows it.
        progress: told of (finished, total) rows.

    Returns:
        What was checked and what differs. An altered row is a mismatch, not an exception.

    Raises:
        ConfigError: the run is incomplete, or was made on another case set.
        DataError: a file is damaged.
        ForecasterUnavailableError: a forecaster that a call needs is not installed (depth `scores` needs none).
    """
    run = Run(path)
    if run.config.fingerprint != loaded.case_set.fingerprint:
        raise ConfigError(f"{path} was run on another case set than {loaded.source} (fingerprints differ)")
    run.require_complete()
    result = Verification(path, len(run.rows))
    result.mismatches += [*_check_config(run, loaded), *check_attempts(path / "rows.jsonl")]
    saved = read_episodes(path / "episodes.jsonl") if depth == "episodes" else {}
    checker = _RowChecker(run, loaded, pool, depth, result)
    for number, row in enumerate(run.rows, start=1):
        where = f"{row.case_id}, repeat {row.repeat}"
        differences = checker.check(row, saved.get((row.case_id, row.repeat)))
        result.mismatches += [Mismatch(where, *difference) for difference in differences]
        if progress is not None:
            progress(number, len(run.rows))
    bare = result.checked["scores"] + result.checked["actions"]
    if bare:
        result.notes.append(
            f"{bare:,} rows were verified without their episodes: rows cannot show that no call was left out of them"
        )
    return result


_Differences = Iterator[tuple[str, Any, Any]]


def _check_config(run: Run, loaded: LoadedCases) -> Iterator[Mismatch]:
    """What the configuration says about the case set: its digest alone could be made anew by whoever changed it."""
    config, case_set = run.config, loaded.case_set
    test_ids = case_ids_digest(case.case_id for case in case_set if case.split == "test")
    facts = {
        "case_set": case_set.name,
        "tariff": sha256_hex(canonical_json(case_set.tariff.to_json()).encode()),
        "sigma": dict(case_set.sigma),
        "cohort_weights": dict(case_set.cohort_weights),
        "budget": case_set.tariff.budget,
        "whole_index": config.case_ids == test_ids,
    }
    for name, found in facts.items():
        stated = getattr(config, name)
        stated = dict(stated) if isinstance(stated, Mapping) else stated
        if stated != found:
            yield Mismatch("config.json", name, stated, found)


def check_attempts(path: Path) -> Iterator[Mismatch]:
    """A scored row is never written twice: a second one would be a second attempt."""
    seen: set[tuple[str, int]] = set()
    content = path.read_bytes()
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        row = json.loads(line)  # `Run` has read it
        key = (row["case_id"], row["repeat"])
        if key in seen:
            yield Mismatch(f"rows.jsonl, line {number}", "a second row after a scored one", key, "one row an episode")
        if row["outcome"] != "infrastructure_error":
            seen.add(key)


class _RowChecker:
    """Checks one row after another, and counts what it reached."""

    def __init__(self, run: Run, loaded: LoadedCases, pool: ForecasterPool, depth: Depth, result: Verification) -> None:
        self._config = run.config
        self._loaded = loaded
        self._pool = pool
        self._depth = depth
        self._result = result
        self._models = pool_models(loaded.case_set.models, run.config.pool)

    def check(self, row: ResultRow, saved: Trajectory | None) -> _Differences:
        """Everything that differs in a row, as (what, saved, found)."""
        if row.case_id not in self._loaded.case_set:
            yield "the case", row.case_id, "no such case"
            return
        case = self._loaded.case_set.by_id(row.case_id)
        for name in ("group_id", "domain", "family", "cohort"):
            yield from _differ(name, getattr(row, name), getattr(case, name))
        if not row.scored:
            self._result.lost += 1
            for name in ("loss", "floor", "credits", "R", "S", "grid_index"):
                yield from _differ(f"{name} of a lost episode", getattr(row, name), None)
            return
        spent, faults = ledger_of(case, row.calls, self._loaded.case_set.tariff, self._models)
        yield from faults
        yield from _differ("credits", row.credits, spent)
        reached = self._reach(row, saved)
        self._result.checked[reached] += 1
        try:
            if reached == "episodes" and saved is not None:
                episode = self._replayed(case, saved)
                yield from _same_answer(row, saved)
            else:
                episode = self._executed(case, row, reached)
        except (ReplayMismatchError, ConfigError) as error:
            yield "the saved actions", "as they stand", str(error)
            return
        if reached != "scores":
            yield from _same_calls(row.calls, episode)
            yield from _differ("credits, executed again", row.credits, episode.spent)
        yield from _differ("outcome", row.outcome, episode.end.outcome)
        score = self._score(case, episode, spent)
        if reached == "episodes" and saved is not None and saved.score is not None:
            again = json.loads(json.dumps(score.to_json()))
            yield from _differ("score of the kept episode", dict(saved.score), again)
        # A refused text that is not kept, or that names a plan of an episode that is not executed, has no fault here.
        if row.valid or reached == "episodes" or self._readable(row, reached) or row.outcome != "invalid_submission":
            yield from _differ("fault", row.fault, score.fault)
        yield from _same_score(row, score)

    def _reach(self, row: ResultRow, saved: Trajectory | None) -> Depth:
        if any(call["error"] == "backend_error" for call in row.calls):
            self._result.unrepeatable += 1
            return "scores"
        if self._depth == "episodes" and saved is None:
            return "actions"
        return self._depth

    def _replayed(self, case: Case, saved: Trajectory) -> Episode:
        """A new episode after the kept responses, with the same prompts and results."""
        limit = saved.conditions.get("max_response_tokens")
        episode = self._episode(case, max_response_tokens=limit)
        replay(saved, episode)
        return episode

    def _executed(self, case: Case, row: ResultRow, reached: Depth) -> Episode:
        """A new episode after the row's calls and answer; without the calls at depth `scores`."""
        calls = row.calls if reached == "actions" else ()
        form = self._config.answer_form if self._readable(row, reached) else "decisions"
        episode = self._episode(case, answer_form=form, max_calls=MAX_CALLS if reached == "actions" else 0)
        for call in calls:
            episode.act(ToolCall(call["tool"], call["arguments"]) if call["tool"] else _UNREADABLE)
        episode.act(self._last_response(case, row, reached), truncated=row.outcome == "truncated")
        return episode

    def _readable(self, row: ResultRow, reached: Depth) -> bool:
        """The row's answer can be read again: it is kept, and names no plan of calls that are not executed."""
        return row.answer is not None and (self._config.answer_form == "decisions" or reached == "actions")

    def _last_response(self, case: Case, row: ResultRow, reached: Depth) -> Response:
        if row.outcome == "budget_exhausted":
            return ToolCall("catalog", {})
        if row.answer is not None and self._readable(row, reached):
            return row.answer
        if row.grid_index is None:
            return ""
        try:
            return json.dumps(CapacityContract.of(case).submission(row.grid_index))
        except (IndexError, ValueError, TypeError) as error:
            raise ConfigError(f"grid_index {row.grid_index} is no plan: {error}") from error

    def _episode(self, case: Case, **conditions: Any) -> Episode:
        config = self._config
        shared = {
            "prompt_mode": config.prompt_mode,
            "prompt_style": config.prompt_style,
            "answer_form": config.answer_form,
            "objective": config.objective,
        }
        settings = EpisodeConfig.of(self._loaded.case_set, case, config.pool, **{**shared, **conditions})
        return Episode(case, settings, self._pool)

    def _score(self, case: Case, episode: Episode, spent: int) -> Score:
        end = episode.end
        return score_submission(
            case,
            self._loaded.targets[case.case_id],
            end.submission,
            spent=spent,
            sigma=self._loaded.case_set.sigma[case.domain],
            budget=self._loaded.case_set.tariff.budget,
            rejection=end.rejection or end.outcome,
        )


def ledger_of(
    case: Case, calls: Sequence[Mapping[str, Any]], tariff: Tariff, models: Sequence[str]
) -> tuple[int, list[tuple[str, Any, Any]]]:
    """What a row's calls cost by the tariff, and where the row says otherwise (protocol, tools and tariff).

    A charge comes before the forecast, so a forecast that ended too early or failed keeps its price; a request that
    cannot be paid costs nothing, and it must really have been too dear.

    Args:
        case: the case.
        calls: calls in order, as rows keep them.
        tariff: rates and budget.
        models: forecasters on sale.

    Returns:
        Credits, and (what, saved, found) of each difference.
    """
    spent = 0
    faults: list[tuple[str, Any, Any]] = []
    if len(calls) > MAX_CALLS:
        faults.append(("number of calls", len(calls), f"at most {MAX_CALLS}"))
    for number, call in enumerate(calls, start=1):
        price = 0
        if call["tool"] in PREDICTION_TOOLS and call["error"] in (None, "unaffordable", *_CHARGED_ERRORS):
            try:
                asked = call["arguments"]
                price = tariff.price(asked["model"], asked["horizon"], asked["context_steps"]).credits
                if asked["model"] not in models or asked["series_id"] != case.series_id:
                    raise ConfigError("not on sale")
            except (ConfigError, LookupError, TypeError):
                faults.append((f"call {number}", dict(call), "a request that this case's tools refuse"))
            if call["error"] == "unaffordable":
                if spent + price <= tariff.budget:
                    faults.append((f"call {number}", "unaffordable", f"{price} of {tariff.budget - spent} credits"))
                price = 0
        if call["credits"] != price:
            faults.append((f"credits of call {number}", call["credits"], price))
        spent += price
    if spent > tariff.budget:
        faults.append(("credits", spent, f"at most {tariff.budget}"))
    return spent, faults


def _same_calls(calls: Sequence[Mapping[str, Any]], episode: AgentEpisode) -> _Differences:
    again = episode.memory.calls
    yield from _differ("number of calls", len(calls), len(again))
    for number, (call, record) in enumerate(zip(calls, again, strict=False), start=1):
        yield from _differ(f"tool of call {number}", call["tool"], record.tool)
        yield from _differ(f"credits of call {number}, executed again", call["credits"], record.credits)
        if call["tool"]:  # the fault of a call that could not be read lies in its text, which rows do not keep
            yield from _differ(f"arguments of call {number}", call["arguments"], dict(record.arguments))
            yield from _differ(f"error of call {number}", call["error"], record.error)


def _same_answer(row: ResultRow, saved: Trajectory) -> _Differences:
    response = saved.steps[-1].response if saved.steps else None
    if isinstance(response, str) and row.answer is not None:
        yield from _differ("answer", row.answer, response)


def _same_score(row: ResultRow, score: Score) -> _Differences:
    for name in ("valid", "grid_index"):
        yield from _differ(name, getattr(row, name), getattr(score, name))
    for name in ("loss", "floor", "R", "S"):
        stated, found = getattr(row, name), getattr(score, name)
        if stated is None or not math.isclose(stated, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield name, stated, found


def read_episodes(path: Path) -> dict[tuple[str, int], Trajectory]:
    """Kept episodes by case and repeat, the latest of each."""
    if not path.is_file():
        return {}
    found = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            saved = Trajectory.from_json(json.loads(line))
            found[saved.case_id, saved.repeat] = saved
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    return found


def _differ(what: str, saved: Any, found: Any) -> _Differences:
    saved = tuple(saved) if isinstance(saved, list) else saved
    if saved != found:
        yield what, saved, found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 300 else text[:297] + "..."
