"""Collected episodes on disk.

config.json      what is collected, with its digest: a folder never mixes two configurations
episodes.jsonl   one finished episode a line: a trajectory, as evaluation runs keep them
faults.jsonl     episodes that the infrastructure failed, one attempt a line; they have no episode yet

A collection that was killed, at whatever moment, continues with the episodes that have no line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from castgym.envs.trajectory import Trajectory

FORMAT = 1
"""Version of the folder's layout."""

EPISODES = "episodes.jsonl"
FAULTS = "faults.jsonl"

EpisodeKey = tuple[str, int]
"""Subject id and number of the repetition."""


class CollectFolder:
    """A folder that this process appends episodes to. Made by `open_collection`.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in (EPISODES, FAULTS):
            cut_unfinished_line(path / name)
        self._done = set(_episode_keys(path / EPISODES))

    @property
    def count(self) -> int:
        """Finished episodes."""
        return len(self._done)

    def pending(self, subject_ids: Iterable[str], per_window: int) -> list[EpisodeKey]:
        """Episodes that have no line yet, the first of every window before the second of any."""
        keys = [(subject_id, repeat) for subject_id in subject_ids for repeat in range(per_window)]
        return sorted((key for key in keys if key not in self._done), key=lambda key: key[1])

    def append(self, trajectory: Trajectory) -> None:
        """Keep a finished episode; it is on disk when this returns."""
        append_lines(self.path / EPISODES, [json.dumps(trajectory.to_json(), allow_nan=False)])
        self._done.add((trajectory.case_id, trajectory.repeat))

    def note_fault(self, key: EpisodeKey, fault: str) -> None:
        """Keep what failed an episode."""
        append_lines(self.path / FAULTS, [json.dumps({"case_id": key[0], "repeat": key[1], "fault": fault})])


@contextmanager
def open_collection(path: Path, config: Mapping[str, Any]) -> Iterator[CollectFolder]:
    """Create a folder of episodes, or continue the collection of the same configuration.

    Args:
        path: the folder.
        config: everything that determines the episodes, JSON.

    Yields:
        The folder; no other process can hold it meanwhile.

    Raises:
        ConfigError: it holds another collection, or another process writes to it.
        DataError: a line of it is damaged.
    """
    with held_folder(path):
        if (path / "config.json").exists():
            _check_same(path, read_json(path / "config.json"), config)
        elif (path / EPISODES).exists():
            raise ConfigError(f"{path} holds episodes without a config.json; choose another folder")
        else:
            digest = sha256_hex(canonical_json(config).encode())
            write_json_atomic(path / "config.json", {"format": FORMAT, "digest": digest, **config})
        yield CollectFolder(path)


def _check_same(path: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ConfigError(f"{path} holds something else than a collection of format {FORMAT}; choose another folder")
    there = {name: value for name, value in found.items() if name not in ("format", "digest")}
    here = json.loads(canonical_json(wanted))
    differing = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if differing:
        parts = [f"{name} is {_shown(there.get(name))} there and {_shown(here.get(name))} here" for name in differing]
        raise ConfigError(f"{path} holds another collection: {'; '.join(parts)}; choose another folder with --out")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _episode_keys(path: Path) -> Iterator[EpisodeKey]:
    if not path.exists():
        return
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                value = json.loads(line)
                yield str(value["case_id"]), int(value["repeat"])
            except (ValueError, TypeError, LookupError) as error:
                raise DataError(
                    f"{path}, line {number}: expected an episode ({error!r}); remove the line or the folder"
                ) from error
