"""What training scripts share: their command line, and a run's folder with its identity and checkpoints.

A run's folder holds `run.json` (settings, data, versions), `metrics.jsonl` (what the trainer logged), `checkpoints/`
and, written last, `model/`. A run never resumes into another one.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from castgym.data.errors import CastgymError, DataError
from castgym.data.files import read_json, write_json_atomic
from castgym.training.run_config import C, load_run_config

LIBRARIES = ("castgym", "torch", "transformers", "trl", "accelerate", "datasets", "tokenizers")
"""Packages whose versions a run notes."""


def run_script(doc: str | None, kind: type[C], train: Callable[[C, bool], None], argv: Sequence[str]) -> int:
    """Read the command line and the settings, then train.

    Args:
        doc: what the script does, for `--help`.
        kind: model of its settings.
        train: is given the settings, and whether to resume.
        argv: arguments without the script's name.

    Returns:
        Exit code: 0, or 2 where a `CastgymError` or an unreadable file ended the run; its message was printed.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="YAML file of settings")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="override a setting, as section.name=value"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint, or from none")
    options = parser.parse_args(argv)
    try:
        train(load_run_config(options.config, kind, options.set), options.resume)
    except (CastgymError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


@dataclass(frozen=True, slots=True)
class TrainingFolder:
    """The folder of a training run.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def record(self) -> Path:
        """Settings, data and versions."""
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        """Metrics, JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model"

    def check(self, identity: Mapping[str, Any], resume: bool) -> Path | None:
        """See whether a run may start here. Every process of a run may ask, before any of them writes.

        Args:
            identity: what makes two runs the same, JSON.
            resume: continue what is there.

        Returns:
            The checkpoint to continue from, `None` to start from the beginning.

        Raises:
            DataError: the folder holds a run and `resume` is false, another run, or a finished one.
        """
        if not self.record.exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise DataError(f"{self.path} holds other files and no run: choose another folder")
            return None
        if not resume:
            raise DataError(f"{self.path} holds a run already: choose another folder, or continue it with --resume")
        found = read_json(self.record).get("identity", {})
        differing = [name for name in sorted({*found, *identity}) if found.get(name) != identity.get(name)]
        if differing:
            lines = [f"  {name}: was {found.get(name)!r}, is {identity.get(name)!r}" for name in differing]
            raise DataError("\n".join([f"{self.path} holds a run of other settings or data:", *lines]))
        if self.model.exists():
            raise DataError(f"{self.path}: the run is finished")
        return self.last_checkpoint()

    def begin(self, identity: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
        """Write down what runs here; for the main process, after every process has checked.

        Args:
            identity: what makes two runs the same.
            notes: whatever else is worth knowing, JSON.
        """
        versions = {name: version(name) for name in LIBRARIES}
        write_json_atomic(self.record, {"identity": dict(identity), "notes": dict(notes), "versions": versions})

    def last_checkpoint(self) -> Path | None:
        """The latest complete checkpoint; one that a kill left half-written does not count."""
        complete = [path for path in self.checkpoints.glob("checkpoint-*") if _is_complete(path)]
        return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _is_complete(checkpoint: Path) -> bool:
    """The trainer writes its state last."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return checkpoint.name.partition("-")[2].isdigit()
