"""Finding case sets by name: the embedded one, built once and cached, or a folder."""

from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

import castgym.data
import castgym.tools.planning
from castgym.data.builder import BuiltCases, exclusions_csv
from castgym.data.cache import cache_folder
from castgym.data.errors import DataError
from castgym.data.files import sha256_hex
from castgym.data.schema import CaseSet, TargetStore
from castgym.data.simulate import simulated_cases
from castgym.data.store import load_case_set, load_targets, save_case_set
from castgym.data.tariff import OFFLINE_TARIFF, Tariff
from castgym.tools.planning.calibration import finish_case_set

EMBEDDED = "embedded"
"""Name of the simulated case set that needs no file and no network."""

OFFLINE_MODELS = ("castgym_bolt", "fracast", "seasonal_empirical")
"""Forecasters that run without network, sold in the case sets that castgym builds; the best on real demand first."""


@dataclass(frozen=True, slots=True)
class LoadedCases:
    """A case set together with its truth, for scorers.

    Attributes:
        case_set: the visible part.
        targets: the truth.
        source: the name or folder that it was loaded from.
    """

    case_set: CaseSet
    targets: TargetStore
    source: str


def _builder_digest() -> str:
    """Hash of the code that builds cases and of what they sell, so that a cache of another making is never read."""
    sources = [
        *sorted(Path(castgym.data.__file__).parent.glob("*.py")),
        *sorted(Path(castgym.tools.planning.__file__).parent.glob("*.py")),
    ]
    return sha256_hex(" ".join(OFFLINE_MODELS).encode(), *(source.read_bytes() for source in sources))


def write_built(
    path: Path,
    built: BuiltCases,
    *,
    overwrite: bool = False,
    tariff: Tariff = OFFLINE_TARIFF,
    models: tuple[str, ...] = OFFLINE_MODELS,
) -> CaseSet:
    """Calibrate sigma and save a builder's cases as a case set folder.

    Args:
        path: folder to create.
        built: cases and targets.
        overwrite: replace an existing folder.
        tariff: rates and budget.
        models: forecasters that agents may buy.

    Returns:
        The case set.

    Raises:
        DataError: the folder exists, or no calibration case is left in a domain.
    """
    case_set = finish_case_set(built, tariff, models)
    save_case_set(path, case_set, built.targets, exclusions=exclusions_csv(built), overwrite=overwrite)
    return case_set


def load_cases(source: str | Path = EMBEDDED) -> LoadedCases:
    """Load a case set and its targets.

    Args:
        source: `embedded`, or a case set folder.

    Raises:
        DataError: the folder is no case set or was damaged.
    """
    if str(source) == EMBEDDED:
        path = cache_folder() / f"simulated-{_builder_digest()[:16]}-seed0"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.is_dir():
                write_built(path, simulated_cases(seed=0))
            try:
                case_set = load_case_set(path)
                return LoadedCases(case_set, load_targets(path, case_set), EMBEDDED)
            except DataError:  # a damaged cache is rebuilt: it holds nothing that the seed does not
                write_built(path, simulated_cases(seed=0), overwrite=True)
                case_set = load_case_set(path)
                return LoadedCases(case_set, load_targets(path, case_set), EMBEDDED)
    path = Path(source)
    case_set = load_case_set(path)
    return LoadedCases(case_set, load_targets(path, case_set), str(path.resolve()))
