"""Runs on disk: a folder with its configuration and one fsynced row an episode.

    config.json     what was run; its hash keys the folder, so a run never resumes into another configuration
    rows.jsonl      result rows, appended and synced one by one
    episodes.jsonl  prompts, responses and tool results (where the run keeps them)

A run that was killed, at whatever moment, continues with the episodes that have no row. What a row is, and what
determines it, differs between benchmarks; how it is kept does not.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from castgym.data.errors import ConfigError, DataError
from castgym.data.files import (
    append_lines,
    canonical_json,
    cut_unfinished_line,
    held_folder,
    read_json,
    sha256_hex,
    write_json_atomic,
)
from castgym.envs.outcomes import OUTCOMES

FORMAT = 2
"""Version of the folder's layout."""


@dataclass(frozen=True)
class FolderConfig(ABC):
    """What every run has; a kind of run adds whatever else determines its rows.

    Attributes:
        policy: the policy's name, unique in a report.
        hindsight: the policy knows the truth: a reference, never ranked among agents.
        case_source: where the subjects were loaded from: `embedded` or a folder.
        fingerprint: content hash of the whole set.
        case_ids: content hash of the chosen ids (`case_ids_digest`).
        n_cases: number of chosen subjects.
        repeats: episodes a subject.
        seed: base seed.
        version: castgym's version.
        options: further settings of the policy.
    """

    policy: str
    hindsight: bool
    case_source: str
    fingerprint: str
    case_ids: str
    n_cases: int
    repeats: int
    seed: int
    version: str
    options: Mapping[str, Any]

    @classmethod
    @abstractmethod
    def kind(cls) -> str:
        """Name of the kind of run, part of the file."""

    @cached_property
    def digest(self) -> str:
        """Hash of the configuration; where the subjects were loaded from does not enter."""
        content = asdict(self)
        del content["case_source"]
        return sha256_hex(canonical_json({"kind": self.kind(), **content}).encode())

    def to_json(self) -> dict[str, Any]:
        """JSON object with the digest."""
        return {"format": FORMAT, "kind": self.kind(), "digest": self.digest, **asdict(self)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read `to_json`.

        Raises:
            DataError: not a configuration of this format and kind, or changed by hand.
        """
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            found = value.get("format") if isinstance(value, dict) else type(value).__name__
            raise DataError(f"expected a run configuration of format {FORMAT}, found {found!r}; run it again")
        if value.get("kind") != cls.kind():
            raise DataError(f"expected a run of {cls.kind()}, found one of {value.get('kind')!r}")
        names = {field.name for field in fields(cls)}
        expected = names | {"format", "kind", "digest"}
        if set(value) != expected:
            raise DataError(f"the run configuration has other fields than expected: {sorted(set(value) ^ expected)}")
        config = cls(**{name: value[name] for name in names})
        if config.digest != value["digest"]:
            raise DataError("the run configuration was changed after it was written; run it again")
        return config


class FolderRow(Protocol):
    """A result row, whatever it measures."""

    @property
    def case_id(self) -> str:
        """The subject."""
        ...

    @property
    def repeat(self) -> int:
        """Number of the repetition, from 0."""
        ...

    @property
    def scored(self) -> bool:
        """The row enters averages: everything but the infrastructure's faults."""
        ...

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        ...

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read `to_json`."""
        ...


def checked_fields(
    row_type: type[Any], value: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]], what: str
) -> dict[str, Any]:
    """The fields of a row that was read, each of its kind.

    Args:
        row_type: the row's dataclass.
        value: JSON object.
        kinds: allowed types by field; others are not checked.
        what: what it should be, for messages.

    Raises:
        DataError: fields are missing, unknown, NaN or of another kind.
    """
    names = {field.name for field in fields(row_type)}
    if set(value) != names:
        raise DataError(f"expected a {what} with the fields {sorted(names)}, found {sorted(value)}")
    wrong = [
        name for name, allowed in kinds.items() if not isinstance(value[name], allowed) or value[name] != value[name]
    ]
    if wrong or value["outcome"] not in OUTCOMES:
        raise DataError(f"expected a {what}, found {', '.join(wrong) or 'outcome'} of another kind")
    return {**value, "calls": tuple(value["calls"])}


ConfigT = TypeVar("ConfigT", bound=FolderConfig)
RowT = TypeVar("RowT", bound=FolderRow)


def case_ids_digest(case_ids: Iterable[str]) -> str:
    """Hash of a set of ids, whatever their order."""
    return sha256_hex(canonical_json(sorted(case_ids)).encode())


def run_kind(path: Path) -> str:
    """The kind of run that a folder holds.

    Raises:
        DataError: the folder is no run.
    """
    if not (path / "config.json").is_file():
        raise DataError(f"{path} is no run: expected a folder with config.json and rows.jsonl")
    value = read_json(path / "config.json")
    return str(value.get("kind")) if isinstance(value, dict) else ""


class RunFolder(Generic[ConfigT, RowT]):
    """A run folder that was read.

    Attributes:
        path: the folder.
        config: its configuration.
        rows: its rows, the latest of each subject and repeat.
    """

    def __init__(self, path: Path, config_type: type[ConfigT], row_type: type[RowT]) -> None:
        run_kind(path)
        self.path = path
        self.config = config_type.from_json(read_json(path / "config.json"))
        self.rows = tuple(read_rows(path / "rows.jsonl", row_type).values())

    @property
    def missing(self) -> int:
        """Episodes without a row."""
        return self.config.n_cases * self.config.repeats - len(self.rows)

    @property
    def complete(self) -> bool:
        """Every episode has a row."""
        return self.missing == 0

    def require_complete(self) -> None:
        """Refuse a run that cannot be averaged or ranked.

        Raises:
            ConfigError: episodes are missing, or the rows are not those of the configuration.
        """
        config = self.config
        total = config.n_cases * config.repeats
        if self.missing > 0:
            raise ConfigError(
                f"{config.policy} ({self.path}): {self.missing} of {total} episodes are missing: resume it with the "
                f"command that started it (`castgym evaluate -p {config.policy} ... --out {self.path.parent}`)"
            )
        cases, repeats = {row.case_id for row in self.rows}, {row.repeat for row in self.rows}
        if (len(self.rows), len(cases), len(repeats)) != (total, config.n_cases, config.repeats):
            raise ConfigError(
                f"{config.policy} ({self.path}): expected {total} rows of {config.n_cases} cases and "
                f"{config.repeats} repeats, found {len(self.rows)} rows of {len(cases)} cases and {len(repeats)} "
                "repeats; the folder was changed, run it again"
            )
        if case_ids_digest(cases) != config.case_ids:
            raise ConfigError(
                f"{config.policy} ({self.path}): its rows are of other cases than its configuration names; the folder "
                "was changed, run it again"
            )


class RunWriter(Generic[ConfigT, RowT]):
    """Appends rows to a run folder that this process holds. Made by `open_folder`."""

    def __init__(self, path: Path, config: ConfigT, row_type: type[RowT]) -> None:
        self.path = path
        self.config = config
        for name in ("rows.jsonl", "episodes.jsonl"):
            cut_unfinished_line(path / name)
        rows = read_rows(path / "rows.jsonl", row_type)
        _cut_orphans(path / "episodes.jsonl", set(rows))
        self._done = {key for key, row in rows.items() if row.scored}

    def pending(self, case_ids: Iterable[str]) -> list[tuple[str, int]]:
        """Episodes (subject id, repeat) that have no row yet or failed by the infrastructure's fault."""
        return [
            (case_id, repeat)
            for repeat in range(self.config.repeats)
            for case_id in case_ids
            if (case_id, repeat) not in self._done
        ]

    def append(self, rows: Sequence[RowT], episodes: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write rows durably; episodes first, so that a row never stands without its episode."""
        if episodes:
            append_lines(self.path / "episodes.jsonl", [json.dumps(episode) for episode in episodes])
        append_lines(self.path / "rows.jsonl", [json.dumps(row.to_json(), allow_nan=False) for row in rows])
        self._done.update((row.case_id, row.repeat) for row in rows if row.scored)


@contextmanager
def open_folder(path: Path, config: ConfigT, row_type: type[RowT]) -> Iterator[RunWriter[ConfigT, RowT]]:
    """Create a run folder, or continue the run of the same configuration.

    Args:
        path: the folder.
        config: what is to be run.
        row_type: its rows.

    Yields:
        The writer; no other process can hold the folder meanwhile.

    Raises:
        ConfigError: the folder holds a run of another configuration, or another process writes to it.
    """
    with held_folder(path):
        if (path / "config.json").exists():
            found = type(config).from_json(read_json(path / "config.json"))
            if found.digest != config.digest:
                raise ConfigError(f"{path} holds a run of another configuration: {_difference(found, config)}")
        elif (path / "rows.jsonl").exists():
            raise ConfigError(f"{path} holds rows without a config.json; choose another folder")
        else:
            write_json_atomic(path / "config.json", config.to_json())
        yield RunWriter(path, config, row_type)


def _cut_orphans(path: Path, known: set[tuple[str, int]]) -> None:
    """Cut episodes off the end that have no row: a crash came between the two, and they will be played again."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = len(content)
    while end > 0:
        start = content.rfind(b"\n", 0, end - 1) + 1
        try:
            episode = json.loads(content[start:end])
            key = episode["case_id"], episode["repeat"]
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise DataError(f"{path}: the last line is no episode ({error!r}); remove it or the run") from error
        if key in known:
            break
        end = start
    if end < len(content):
        with path.open("r+b") as stream:
            stream.truncate(end)


def _difference(found: FolderConfig, wanted: FolderConfig) -> str:
    old, new = _flat(asdict(found)), _flat(asdict(wanted))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name) and name != "case_source"]
    parts = [f"{name} is {_shown(old.get(name))} there and {_shown(new.get(name))} here" for name in names]
    return "; ".join(parts) + "; choose another folder with --out"


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as `outer.inner`, so that a difference names the setting and not the whole group."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat |= _flat(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return flat


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_rows(path: Path, row_type: type[RowT]) -> dict[tuple[str, int], RowT]:
    """Rows by (subject id, repeat), later ones replacing earlier ones; a last line without its end does not count.

    Raises:
        DataError: a line is no row.
    """
    if not path.exists():
        return {}
    content = path.read_bytes()
    rows: dict[tuple[str, int], RowT] = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            row = row_type.from_json(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        rows[row.case_id, row.repeat] = row
    return rows
