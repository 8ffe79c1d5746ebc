"""Where a forecaster's weights lie, and the text that identifies what it computes."""

import hashlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.data.files import sha256_hex

MODELS_VARIABLE = "CASTGYM_MODELS"
"""Environment variable that names a folder of downloaded models."""

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Weights of a foundation model and the package that runs them.

    Attributes:
        name: the forecaster's name, and that of its folder in `models`.
        package: distribution that runs it.
        hub_id: repository on the Hugging Face Hub; empty for weights that are only local.
        revision: branch, tag or commit of the repository. The shipped sources follow the branch `main`, since no
            commit of theirs could be checked when they were written: the digest of the weights is what identifies a
            model here, and whoever needs a certain commit gives it, or downloads it into `models`.
        models: folder of downloaded models: `<models>/<name>` or `<models>/<hub_id>` is read instead of the hub.
        local: folder of the weights, read before all else.
        files: what the folder must hold.
    """

    name: str
    package: str
    hub_id: str = ""
    revision: str = "main"
    models: Path | None = None
    local: Path | None = None
    files: tuple[str, ...] = (CONFIG_FILE, WEIGHTS_FILE)

    def within(self, models: Path | None) -> "ModelSource":
        """The same source, looked for in a folder of downloaded models first."""
        return replace(self, models=models)

    def folder(self) -> Path:
        """The folder of the weights: `local`, else one in `models`, else the hub's cache, else a download.

        Raises:
            ForecasterUnavailableError: there is none; the message says where it may be put.
        """
        if self.local is not None:
            return self._complete(self.local)
        if self.models is not None:
            for folder in (self.models / self.name, self.models / self.hub_id):
                if folder.is_dir():
                    return self._complete(folder)
        return self._complete(self._from_hub())

    def identity(self, *settings: str) -> str:
        """What determines the forecasts: name, package version, digest of the weights, and further settings.

        Reads the weights' bytes, but needs neither torch nor the model in memory.

        Raises:
            ForecasterUnavailableError: the package or the weights are missing.
        """
        version = package_version(self.name, self.package)
        return "|".join((self.name, f"{self.package}={version}", weights_digest(self.folder(), self.files), *settings))

    def _complete(self, folder: Path) -> Path:
        missing = [name for name in self.files if not (folder / name).is_file()]
        if missing:
            raise ForecasterUnavailableError(
                f"the weights of {self.name} are incomplete: {', '.join(missing)} not found in {folder}"
            )
        return folder

    def _from_hub(self) -> Path:
        try:
            from huggingface_hub import snapshot_download
        except ImportError as error:
            raise missing_package(self.name, "huggingface_hub", error) from error
        fetch = partial(snapshot_download, self.hub_id, revision=self.revision, allow_patterns=list(self.files))
        try:
            # What was downloaded once is used without asking the hub again.
            found = Path(fetch(local_files_only=True))
            if all((found / name).is_file() for name in self.files):
                return found
        except (OSError, ValueError):
            pass
        try:
            return Path(fetch())
        except Exception as error:  # whatever the network or the hub may raise means the same here
            raise ForecasterUnavailableError(
                f"no weights of {self.name}: {self.hub_id} ({self.revision}) could not be downloaded "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}). Without "
                f"network, put {' and '.join(self.files)} into <folder>/{self.name} and set {MODELS_VARIABLE}=<folder>"
            ) from error


def models_folder() -> Path | None:
    """The folder named by `$CASTGYM_MODELS`, if it is set.

    Raises:
        ConfigError: it is set and is no folder.
    """
    named = os.environ.get(MODELS_VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{MODELS_VARIABLE} names {folder}, which is no folder")
    return folder


def missing_package(name: str, package: str, error: Exception) -> ForecasterUnavailableError:
    """The error for a forecaster whose package is not installed."""
    return ForecasterUnavailableError(
        f"the forecaster {name} needs the package {package} ({error}): pip install 'castgym[forecast]'"
    )


def package_version(name: str, package: str) -> str:
    """Version of the installed distribution that the forecaster `name` needs.

    Raises:
        ForecasterUnavailableError: it is not installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise missing_package(name, package, error) from error


def module_folder(name: str, module: str) -> Path:
    """Folder of an installed module, found without importing it.

    Raises:
        ForecasterUnavailableError: it is not installed.
    """
    try:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"no module named {module!r}")
    except (ImportError, ValueError) as error:
        raise missing_package(name, module, error) from error
    return Path(next(iter(spec.submodule_search_locations)))


def weights_digest(folder: Path, files: Sequence[str]) -> str:
    """Hash of the named files of a folder."""
    parts = []
    for name in files:
        with (folder / name).open("rb") as stream:
            parts.append(f"{name}={hashlib.file_digest(stream, 'sha256').hexdigest()}")
    return sha256_hex(*(part.encode() for part in parts))
