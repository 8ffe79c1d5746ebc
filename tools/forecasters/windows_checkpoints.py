"""Trained forecasters of windows on disk, and what they were trained on. Needs no torch.

    <checkpoints>/<dataset>-<L>-<H>/<training data>/<model>/     config.json, and model.safetensors for a network

`<training data>` is the beginning of `training_fingerprint`. A checkpoint serves only the data that it was trained on;
a window of its own training or validation split, shown as a later split, is refused too.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from castgym.data.cache import cache_folder
from castgym.data.errors import ConfigError, DataError, ForecasterUnavailableError
from castgym.data.files import canonical_json, read_json, sha256_hex
from castgym.data.windows import MINUTE, WINDOW_SPLITS, Window
from castgym.data.windows_set import WindowSet
from castgym.tools.forecasters.sources import CONFIG_FILE
from castgym.tools.forecasters.windows_base import WindowTask

FORMAT = 1
"""Version of a checkpoint's config."""

TRAIN_COMMAND = "castgym train-forecasters"

_FOLDER_DIGITS = 16


def default_checkpoints() -> Path:
    """Where trained forecasters are kept unless told otherwise: `window_models` in castgym's cache folder."""
    return cache_folder() / "window_models"


def training_fingerprint(window_set: WindowSet) -> str:
    """Hash of all that training may read: settings, borders, and the rows of the training and validation splits.

    Rows of the test split are no part of it.
    """
    settings = {key: value for key, value in window_set.describe().items() if key not in ("rows", "unit", "market")}
    settings["borders"] = {split: window_set.borders[split] for split in ("train", "validation")}
    rows = window_set.values[: window_set.borders["validation"][1]]
    return sha256_hex(canonical_json(settings).encode(), rows.astype("<f8").tobytes())


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """The data that a checkpoint was made from.

    Attributes:
        dataset: name of the data set.
        length: steps of history, L.
        horizon: steps to forecast, H.
        step_minutes: time between rows.
        channels: target first.
        known_channels: channels known over the horizon.
        fingerprint: see `training_fingerprint`.
        training_end: time after the last row of the training split.
        validation_end: time after the last row of the validation split.
    """

    dataset: str
    length: int
    horizon: int
    step_minutes: int
    channels: tuple[str, ...]
    known_channels: tuple[str, ...]
    fingerprint: str
    training_end: datetime
    validation_end: datetime

    @staticmethod
    def of(window_set: WindowSet) -> "TrainedOn":
        """What training on a set reads."""
        ends = {split: window_set.start + window_set.borders[split][1] * window_set.step for split in WINDOW_SPLITS}
        return TrainedOn(
            dataset=window_set.name,
            length=window_set.length,
            horizon=window_set.horizon,
            step_minutes=window_set.step // MINUTE,
            channels=window_set.channels,
            known_channels=window_set.known,
            fingerprint=training_fingerprint(window_set),
            training_end=ends["train"],
            validation_end=ends["validation"],
        )

    def refuse_unfit(self, window: Window) -> None:
        """Refuse a window of other data, or one whose horizon the checkpoint has seen.

        Raises:
            ConfigError: the message says what was expected and found.
        """
        wanted = (self.dataset, self.length, self.horizon, self.step_minutes, self.channels, self.known_channels)
        found = (
            window.dataset,
            window.length,
            window.horizon,
            window.step // MINUTE,
            window.channels,
            window.known_channels,
        )
        if wanted != found:
            raise ConfigError(f"{window.window_id}: the checkpoint was trained on {wanted}, the window is of {found}")
        seen = {"train": datetime.min, "validation": self.training_end, "test": self.validation_end}[window.split]
        if window.origin < seen:
            raise ConfigError(
                f"{window.window_id}: the checkpoint of {self.dataset} was trained or validated on rows up to {seen}, "
                f"so its forecast of this {window.split} window would be no forecast: the splits differ; train on this "
                f"data with `{TRAIN_COMMAND}`"
            )

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {
            "dataset": self.dataset,
            "length": self.length,
            "horizon": self.horizon,
            "step_minutes": self.step_minutes,
            "channels": list(self.channels),
            "known_channels": list(self.known_channels),
            "fingerprint": self.fingerprint,
            "training_end": self.training_end.isoformat(),
            "validation_end": self.validation_end.isoformat(),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> "TrainedOn":
        """Read back what `to_json` wrote."""
        return TrainedOn(
            dataset=value["dataset"],
            length=value["length"],
            horizon=value["horizon"],
            step_minutes=value["step_minutes"],
            channels=tuple(value["channels"]),
            known_channels=tuple(value["known_channels"]),
            fingerprint=value["fingerprint"],
            training_end=datetime.fromisoformat(value["training_end"]),
            validation_end=datetime.fromisoformat(value["validation_end"]),
        )


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A folder of trained forecasters.

    Attributes:
        folder: see the module.
    """

    folder: Path

    def path(self, window_set: WindowSet, model: str) -> Path:
        """Where the model trained on a set is kept."""
        return self._path(WindowTask.of(window_set), training_fingerprint(window_set), model)

    def find(self, task: WindowTask, model: str) -> Path | None:
        """The checkpoint of a model for a task; `None` where none was trained for this data set.

        Raises:
            ForecasterUnavailableError: it was trained on other data than those of the task.
            ConfigError: several are there and the task does not tell which.
        """
        present = sorted(path for path in (self.folder / task.key).glob(f"*/{model}") if (path / CONFIG_FILE).is_file())
        if not present:
            return None
        if not task.fingerprints:
            if len(present) > 1:
                raise ConfigError(
                    f"{model} was trained on {len(present)} versions of {task.key} in {self.folder}, and a window does "
                    "not tell which is meant: call require([...], window_set) of the pool first, or remove the others"
                )
            return present[0]
        meant = [path for path in present if any(path == self._path(task, item, model) for item in task.fingerprints)]
        if not meant:
            raise ForecasterUnavailableError(
                f"{model} in {self.folder / task.key} was trained on other data (fingerprint "
                f"{', '.join(path.parent.name for path in present)}) than the data set {task.dataset} asked for "
                f"({', '.join(sorted(item[:_FOLDER_DIGITS] for item in task.fingerprints))}): run `{TRAIN_COMMAND}`"
            )
        if len(task.fingerprints) > 1:
            raise ConfigError(
                f"this pool serves several data sets called {task.key}, and {model} depends on which is meant: use a "
                "pool of its own for each"
            )
        return meant[0]

    def require(self, task: WindowTask, model: str) -> Path:
        """The checkpoint of a model for a task.

        Raises:
            ForecasterUnavailableError: there is none; the message says how to make it.
            ConfigError: several are there and the task does not tell which.
        """
        found = self.find(task, model)
        if found is None:
            raise ForecasterUnavailableError(
                f"{model} was not trained for {task.dataset} with L={task.length}, H={task.horizon}: expected a folder "
                f"{self.folder / task.key}/*/{model}; run `{TRAIN_COMMAND}` on the data set, or name the folder of its "
                "checkpoints"
            )
        return found

    def _path(self, task: WindowTask, fingerprint: str, model: str) -> Path:
        return self.folder / task.key / fingerprint[:_FOLDER_DIGITS] / model


def read_config(folder: Path, model: str) -> tuple[dict[str, Any], TrainedOn]:
    """Read and check the config of a checkpoint.

    Raises:
        DataError: it is missing, damaged, of another format or of another model.
    """
    path = folder / CONFIG_FILE
    config = read_json(path)
    try:
        found = (config["format"], config["model"])
        trained_on = TrainedOn.from_json(config["trained_on"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: expected the config of a trained forecaster: {error!r}") from error
    if found != (FORMAT, model):
        raise DataError(
            f"{path}: expected format {FORMAT} of {model}, found format {found[0]!r} of {found[1]!r}: run "
            f"`{TRAIN_COMMAND} --overwrite`"
        )
    return config, trained_on
