"""A frozen choice of window sets: a folder with a manifest, from which the sets are rebuilt and verified.

Values are not copied: an official file is read in about a tenth of a second, so a copy would save nothing, and some
licences forbid changed ones (ETT is CC BY-ND). The manifest names each file, its settings and the fingerprint of what
came out; a set that rebuilds to another fingerprint is refused.

windows.json            format, and for each set: source, settings, splits, training statistics, fingerprint
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from castgym.data.errors import DataError
from castgym.data.files import folder_atomic, read_json, write_json_atomic
from castgym.data.windows import WINDOW_SPLITS
from castgym.data.windows_files import read_window_set
from castgym.data.windows_set import WindowSet
from castgym.data.windows_simulate import simulated_windows

FORMAT = 1
"""Version of the folder's layout."""

MANIFEST = "windows.json"


def save_window_sets(path: Path, sets: Sequence[WindowSet], *, overwrite: bool = False) -> None:
    """Write the manifest of some sets; the folder appears whole or not at all.

    Args:
        path: folder to create.
        sets: as the readers or the simulator made them.
        overwrite: replace an existing folder that holds a manifest.

    Raises:
        DataError: the folder exists or holds something else, or two sets have one name.
    """
    if len({item.name for item in sets}) < len(sets):
        raise DataError(f"expected each data set once, found {', '.join(item.name for item in sets)}")
    if overwrite and path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).is_file():
        raise DataError(f"{path} holds something else than window sets: it is not replaced; choose another folder")
    with folder_atomic(path, overwrite=overwrite) as folder:
        write_json_atomic(folder / MANIFEST, {"format": FORMAT, "sets": [_entry(item) for item in sets]})


def load_window_sets(path: Path, files: Path | None = None) -> tuple[WindowSet, ...]:
    """Rebuild the sets of a manifest.

    Args:
        path: folder with the manifest.
        files: folder of the official files; needed unless all sets are simulated.

    Raises:
        DataError: there is no manifest, a file is missing, or a set is not the one that was saved.
    """
    manifest = read_json(path / MANIFEST)
    try:
        if manifest["format"] != FORMAT:
            raise DataError(f"{path}: expected format {FORMAT}, found {manifest['format']!r}: write the folder again")
        sets = tuple(_rebuild(path, entry, files) for entry in manifest["sets"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / MANIFEST}: expected a manifest of window sets: {error!r}") from error
    return sets


def _entry(item: WindowSet) -> dict[str, Any]:
    return {
        **item.describe(),
        "source": dict(item.source),
        "borders": {split: list(item.borders[split]) for split in WINDOW_SPLITS},
        "windows": {split: len(item.origins(split)) for split in WINDOW_SPLITS},
        "training_mean": item.statistics.mean.tolist(),
        "training_std": item.statistics.std.tolist(),
        "fingerprint": item.fingerprint,
    }


def _rebuild(path: Path, entry: dict[str, Any], files: Path | None) -> WindowSet:
    source = entry["source"]
    if source["kind"] == "simulated":
        found = {item.name: item for item in simulated_windows(source["seed"])}.get(entry["name"])
        if found is None:
            raise DataError(f"{path}: there is no simulated set {entry['name']!r}")
        rebuilt = found.with_lengths(entry["length"], entry["horizon"])
    elif files is None:
        raise DataError(f"{path}: {entry['name']} is built from {source['file']}: name the folder that holds it")
    else:
        rebuilt = read_window_set(
            files / source["file"],
            dataset=entry["name"],
            length=entry["length"],
            horizon=entry["horizon"],
            whole_file=source["whole_file"],
        )
    if rebuilt.fingerprint != entry["fingerprint"]:
        raise DataError(
            f"{path}: {entry['name']} has the fingerprint {rebuilt.fingerprint[:12]}, expected "
            f"{entry['fingerprint'][:12]}: the file or the rule that cuts windows has changed"
        )
    return rebuilt
