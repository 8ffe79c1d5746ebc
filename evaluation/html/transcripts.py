"""Which kept episodes the page holds in full, and how: texts once each, as many episodes as fit a number of bytes."""

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from castgym.data.errors import CastgymError, DataError
from castgym.data.files import sha256_hex
from castgym.data.schema import Case
from castgym.envs.casesets import LoadedCases
from castgym.envs.trajectory import Step, Trajectory
from castgym.evaluation.html.cases import Names, peak_of, plan_code, quantised
from castgym.evaluation.report_tables import Report
from castgym.evaluation.rows import ResultRow
from castgym.tools.calls import parse_response
from castgym.tools.forecasters.pool import ForecasterPool
from castgym.tools.planning.contract import CapacityContract

LONGEST_TEXT = 20_000
"""Characters of one message that are kept; of a longer one the middle is left out, and the page says so."""

FAILURES_FIRST = 5
"""Episodes of each named fault of a policy that come before all others."""

DRAWN_FORECASTS = 200
"""Bought forecasts that are drawn; further ones are listed."""

_LEVELS = (0, 4, 8)
"""The quantiles 0.1, 0.5 and 0.9 of a bought forecast."""

_CHUNK = 1_500_000
"""Uncompressed bytes after which another chunk begins: a reader unpacks only that of the episode that is opened."""

_OVERHEAD = 100
"""Bytes of a chunk beside its episodes."""

_KEY = re.compile(rb'"case_id": ("(?:[^"\\]|\\.)*"), "repeat": (\d+)')


@dataclass(frozen=True, slots=True)
class Transcripts:
    """Episodes for the page.

    Attributes:
        chunks: JSON arrays of episodes; the texts that an episode adds are numbered on from those before it in its
            chunk.
        keys: of each episode, in order: policy and case (both by number), repeat, number of the chunk, place in it.
        kept: episodes that the runs kept.
    """

    chunks: tuple[str, ...]
    keys: tuple[tuple[int, int, int, int, int], ...]
    kept: int


def choose_transcripts(
    report: Report,
    positions: Mapping[str, int],
    loaded: LoadedCases | None,
    pool: ForecasterPool | None,
    limit: int,
) -> Transcripts:
    """Take kept episodes until their compressed size meets a limit.

    First some failures of each kind, then the same cases for all policies, evenly from cohorts and leads, in an order
    that is free of results (by the hash of the case id).

    Args:
        report: from `build_report`.
        positions: position of each case in the page's table.
        loaded: the case set; without it there are no plans and forecasts to draw.
        pool: forecasters, to draw bought forecasts; without it they are listed only.
        limit: compressed bytes.

    Raises:
        DataError: a kept episode is damaged.
    """
    places = [_places(result.run.path / "episodes.jsonl") for result in report.results]
    drawn = _Forecasts(pool)
    chunks: list[list[str]] = []
    keys: list[tuple[int, int, int, int, int]] = []
    size, raw, texts, squeeze = 0, _CHUNK, Names(), zlib.compressobj(9)
    for policy, key in _order(report, places):
        path = report.results[policy].run.path / "episodes.jsonl"
        saved = _read(path, places[policy][key])
        case = None if loaded is None else loaded.case_set.by_id(saved.case_id)
        actual = None if loaded is None else loaded.targets[saved.case_id].actual
        if raw >= _CHUNK:
            raw, texts, squeeze = 0, Names(), zlib.compressobj(9)
            chunks.append([])
        known = len(texts.texts)
        episode = _episode(saved, case, actual, drawn, texts)
        line = json.dumps({**episode, "t": texts.texts[known:]}, separators=(",", ":"))
        added = len(squeeze.compress(line.encode()) + squeeze.flush(zlib.Z_SYNC_FLUSH))
        if size + added + (0 if chunks[-1] else _OVERHEAD) > limit:
            break
        size, raw = size + added + (0 if chunks[-1] else _OVERHEAD), raw + len(line)
        keys.append((policy, positions[saved.case_id], saved.repeat, len(chunks) - 1, len(chunks[-1])))
        chunks[-1].append(line)
    return Transcripts(tuple(f"[{','.join(lines)}]" for lines in chunks if lines), tuple(keys), sum(map(len, places)))


def _places(path: Path) -> dict[tuple[str, int], int]:
    """Where each kept episode begins in its file, the latest of each; the file is not held in memory."""
    if not path.is_file():
        return {}
    places, offset = {}, 0
    with path.open("rb") as stream:
        for line in stream:
            found = _KEY.search(line[:2000])
            if found is None:
                raise DataError(f"{path}: expected an episode with case_id and repeat at byte {offset}")
            places[json.loads(found[1]), int(found[2])] = offset
            offset += len(line)
    return places


def _read(path: Path, offset: int) -> Trajectory:
    with path.open("rb") as stream:
        stream.seek(offset)
        try:
            return Trajectory.from_json(json.loads(stream.readline()))
        except (ValueError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}, byte {offset}: {error}") from error


def _order(report: Report, places: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[tuple[int, tuple[str, int]]]:
    failures: list[tuple[int, tuple[str, int]]] = []
    cells: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for policy, result in enumerate(report.results):
        kinds: dict[str, int] = {}
        for row in result.run.rows:
            key = (row.case_id, row.repeat)
            if key not in places[policy]:
                continue
            cells.setdefault((row.cohort, row.family), set()).add(key)
            if row.scored and not row.valid:
                kinds[_kind(row)] = kinds.get(_kind(row), 0) + 1
                if kinds[_kind(row)] <= FAILURES_FIRST:
                    failures.append((policy, key))
    queues = [sorted(keys, key=lambda key: (key[1], sha256_hex(key[0].encode()))) for _, keys in sorted(cells.items())]
    turns = [key for turn in zip_longest(*queues) for key in turn if key is not None]
    everything = [*failures, *((policy, key) for key in turns for policy in range(len(places)))]
    for policy, key in dict.fromkeys(everything):
        if key in places[policy]:
            yield policy, key


def _kind(row: ResultRow) -> str:
    return f"{row.outcome}:{row.fault}"


class _Forecasts:
    """Bought forecasts again, as curves: the first ones of the page, so that a slow forecaster cannot hold it up."""

    def __init__(self, pool: ForecasterPool | None) -> None:
        self._pool = pool
        self._left = DRAWN_FORECASTS
        self._failed: set[str] = set()

    def bands(self, bought: Mapping[str, Any], case: Case, actual: Any) -> list[list[int]] | None:
        """Low, middle and high quantile from the first hour after the history; `None` where it is only listed."""
        model = str(bought.get("model"))
        if self._pool is None or self._left == 0 or model in self._failed:
            return None
        self._left -= 1
        try:
            context = case.history[-int(bought["context_steps"]) :]
            quantiles = self._pool.forecast(model, context, int(bought["horizon"]))
        except (CastgymError, LookupError, ValueError):  # not installed here, for example
            self._failed.add(model)
            return None
        peak = peak_of(case, actual)
        return [quantised(quantiles[: case.expected_horizon, level], peak) for level in _LEVELS]


def _episode(saved: Trajectory, case: Case | None, actual: Any, drawn: _Forecasts, texts: Names) -> dict[str, Any]:
    steps, plans, forecasts = [], [], []
    for number, step in enumerate(saved.steps):
        steps.append(_step(step, texts))
        for content in step.results:
            if case is not None and "capacity_plan" in content:
                plans.append({"step": number, **_plan(content, case)})
            bought = content.get("forecast")
            if case is not None and isinstance(bought, Mapping):
                curves = drawn.bands(bought, case, actual)
                forecasts.append({"step": number, "credits": content.get("credits"), **bought, "bands": curves})
    return {"steps": steps, "plans": plans, "forecasts": forecasts, "rejection": saved.end.get("rejection")}


def _step(step: Step, texts: Names) -> dict[str, Any]:
    response = step.response
    if isinstance(response, Mapping) and "name" in response and "arguments" in response:
        said, thinking = "", ""
        calls = [f"{response['name']}({json.dumps(response['arguments'], ensure_ascii=False)})"]
    else:
        message = response if isinstance(response, Mapping) else {"content": response}
        said = str(message.get("content") or "")
        thinking = str(message.get("reasoning_content") or "") if isinstance(response, Mapping) else ""
        structured = bool(message.get("tool_calls"))
        calls = (
            [f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in parse_response(message).calls]
            if structured
            else []
        )
    return {
        "m": [[str(message.get("role")), texts.number(_shown(_content(message)))] for message in step.messages],
        "think": texts.number(_shown(thinking)) if thinking else -1,
        "say": texts.number(_shown(said)) if said else -1,
        "calls": [texts.number(_shown(call)) for call in calls],
        "out": [texts.number(_shown(_lines(result))) for result in step.results],
        "err": list(step.errors),
    }


def _lines(result: Mapping[str, Any]) -> str:
    """A result as JSON, one line a field: long lists of hours would fill the screen otherwise."""
    fields = (f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in result.items())
    return "{\n" + ",\n".join(fields) + "\n}"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False)}".strip() if calls else text


def _plan(content: Mapping[str, Any], case: Case) -> dict[str, Any]:
    proposal = content["capacity_plan"]
    index, _, _ = CapacityContract.of(case).read_plan(proposal["submission"])
    bought = content.get("forecast")
    source = str(content.get("method") or (bought or {}).get("model") or "plan")
    return {
        "id": str(proposal.get("plan_id", "")),
        "source": source,
        "plan": "" if index is None else plan_code(index),
        "expected": proposal.get("expected_normalized_loss"),
        "credits": content.get("credits", 0),
    }


def _shown(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    head, tail = LONGEST_TEXT * 3 // 4, LONGEST_TEXT // 4
    return f"{text[:head]}\n\n[… {len(text) - head - tail:,} characters left out of this page …]\n\n{text[-tail:]}"
