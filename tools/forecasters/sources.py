"""Where a forecaster's weights lie, and the text that identifies what it computes."""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.data.files import sha256_hex

MODELS_VARIABLE = "CASTGYM_MODELS"
"""Environment variable that says where models come from: a folder of downloaded ones, pins of hub models, or both:
`/my/models,chronos2=amazon/chronos-2@COMMIT`."""

_HUB = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")

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
            model here, and whoever needs a certain commit pins it (`at`), or downloads it into `models`.
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

    def at(self, hub: str) -> "ModelSource":
        """The same model from a certain repository and revision of the hub, whatever lies in `models`.

        Args:
            hub: `org/name@revision`, where the revision is a commit, a tag or a branch; without it, `main`.

        Raises:
            ConfigError: it is no such text, or the weights do not come from the hub.
        """
        found = _HUB.fullmatch(hub)
        if found is None:
            raise ConfigError(f"expected a hub model such as amazon/chronos-2@COMMIT for {self.name}, found {hub!r}")
        if not self.hub_id:
            raise ConfigError(f"{self.name} does not come from the hub, so no revision of it can be pinned")
        return replace(self, hub_id=found["id"], revision=found["revision"] or "main", models=None)

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
    """The folder named by `$CASTGYM_MODELS`, if one is named.

    Raises:
        ConfigError: what is named is no folder.
    """
    folder, _ = _models_setting()
    return folder


def models_pins() -> Mapping[str, str]:
    """The hub models that `$CASTGYM_MODELS` pins: forecaster name to `org/name@revision`.

    Raises:
        ConfigError: a forecaster is pinned twice.
    """
    _, pins = _models_setting()
    return pins


def _models_setting() -> tuple[Path | None, Mapping[str, str]]:
    setting = os.environ.get(MODELS_VARIABLE, "")
    parts = [part.strip() for part in setting.split(",") if part.strip()]
    if Path(setting).expanduser().is_dir():  # a folder's name may hold a comma or an equals sign
        parts = [setting] if setting else []
    pinned = [part.partition("=") for part in parts if _is_pin(part)]
    pins = {name.strip(): hub.strip() for name, _, hub in pinned}
    if len(pins) < len(pinned):
        raise ConfigError(f"{MODELS_VARIABLE} pins a forecaster twice: {setting}")
    folders = [Path(part).expanduser() for part in parts if not _is_pin(part)]
    if len(folders) > 1:
        raise ConfigError(f"expected one folder in {MODELS_VARIABLE}, found {', '.join(map(str, folders))}")
    if folders and not folders[0].is_dir():
        raise ConfigError(f"{MODELS_VARIABLE} names {folders[0]}, which is no folder")
    return (folders[0] if folders else None), pins


def _is_pin(part: str) -> bool:
    return "=" in part and not Path(part).expanduser().is_dir()


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
