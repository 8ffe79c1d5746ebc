"""Files that are never half-written: atomic writes, canonical JSON and content hashes."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from castgym.data.errors import ConfigError, DataError


def canonical_json(value: Any) -> str:
    """Serialise to JSON with sorted keys and no spaces, so that equal values give equal text.

    Args:
        value: JSON-able value; NaN and infinities are refused.

    Returns:
        One line of ASCII text.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def iso_utc(moment: datetime) -> str:
    """A UTC time as ISO 8601 with `Z`, as the protocol's files and tools write it."""
    return moment.isoformat().replace("+00:00", "Z")


def sha256_hex(*parts: bytes) -> str:
    """Hash byte strings, each prefixed by its length so that a moved border changes the digest."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing, is not UTF-8 or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"expected a file {path}, found none") from error
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(f"expected JSON text (UTF-8) in {path}: {error}") from error


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes_atomic(path, text.encode("utf-8"))


def write_bytes_atomic(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, sync it, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)  # mkstemp gives 0600, which other users of a shared folder cannot read
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines durably: all of them are on disk when this returns, none of them where it raises.

    Raises:
        OSError: the disk is full or the file cannot be written; the file is as it was.
    """
    content = "".join(line + "\n" for line in lines).encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(content):
                written += stream.write(content[written:]) or 0
            os.fsync(stream.fileno())
        except BaseException:
            stream.truncate(size)
            raise


def cut_unfinished_line(path: Path) -> None:
    """Cut off a last line without its end, which a crash left, so that the next append starts on a line of its own."""
    if not path.exists():
        return
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        with path.open("r+b") as stream:
            stream.truncate(complete)


def write_json_atomic(path: Path, value: Any) -> None:
    """Write an indented JSON file atomically."""
    write_text_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def folder_atomic(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary sibling folder and rename it to `path` only when the block succeeds.

    Args:
        path: the folder to create.
        overwrite: replace an existing folder; otherwise an existing one is an error.

    Yields:
        The temporary folder to write into.

    Raises:
        DataError: `path` exists and `overwrite` is false.
    """
    path = path.resolve()
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists already: choose another folder, or pass --overwrite to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        temporary.chmod(0o755)
        yield temporary
        if path.exists():
            retired = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
            path.rename(retired / path.name)
            temporary.rename(path)
            shutil.rmtree(retired, ignore_errors=True)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def held_folder(path: Path) -> Iterator[None]:
    """Create a folder where there is none, and hold it: no other process can hold it meanwhile.

    Raises:
        ConfigError: another process holds it.
    """
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(f"another process writes to {path}; wait for it or choose another folder") from error
    try:
        yield
    finally:
        lock.release()
