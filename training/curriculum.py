"""Difficulty-aware curriculum (Cast-R1, 3.5.2 and D.4): which training subjects, in which order.

Two dimensions: the error of a reference that knows the history only, and the normalised permutation entropy of that
history. Subjects high in both are dominated by noise and are dropped; the others come from simple to complex. The
paper gives no thresholds and no rule that joins the two: here both are ranked within their data set, because errors of
different data sets have different units, and the complexity is the mean of the two ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.stats import rankdata

from castgym.data.errors import ConfigError
from castgym.data.files import write_text_atomic
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.plots import BLUE, MUTED, VERMILLION, new_figure, save_png, tidy
from castgym.envs.sources import DecisionSource, EpisodeSource
from castgym.tools.diagnostics.permutation_entropy import permutation_entropy
from castgym.training.references import reference_errors
from castgym.training.run_config import RunConfig


class CurriculumSettings(RunConfig):
    """Settings of the curriculum. The two switches separate its halves, which the paper does not (Section 4.3.3).

    Attributes:
        filter: drop subjects that noise dominates.
        order: simple ones first; else in random order.
        noise_quantile: a subject is dominated by noise where its error and its entropy are both above this quantile
            of its data set.
        pattern_order: length m of the ordinal patterns.
        pattern_delay: steps l between their members.
    """

    filter: bool = True
    order: bool = True
    noise_quantile: float = Field(0.7, gt=0.0, lt=1.0)
    pattern_order: int = Field(4, ge=2)
    pattern_delay: int = Field(1, ge=1)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How hard a training subject is.

    Attributes:
        subject_id: the case or window.
        dataset: its data set.
        error: the reference's error: of a forecast the MSE of repeating the last day, of a decision the score of the
            free hour-of-day plan.
        entropy: normalised permutation entropy of the history, in [0, 1].
    """

    subject_id: str
    dataset: str
    error: float
    entropy: float


def measure_difficulty(
    source: EpisodeSource, subject_ids: Sequence[str], settings: CurriculumSettings
) -> list[Difficulty]:
    """Measure training subjects.

    Args:
        source: training cases or windows with their truth.
        subject_ids: which of them.
        settings: order and delay of the patterns.

    Raises:
        ConfigError: the source is not of the training split, or of a kind without a reference.
    """
    if source.split != "train":
        raise ConfigError(f"expected training data, found the {source.split} split: its truth is not to be looked at")
    errors = reference_errors(source, subject_ids)
    return [
        Difficulty(
            subject_id,
            source.dataset(subject_id),
            float(errors[subject_id]),
            permutation_entropy(_history(source, subject_id), settings.pattern_order, settings.pattern_delay),
        )
        for subject_id in subject_ids
    ]


def noise_dominated(difficulties: Sequence[Difficulty], quantile: float) -> npt.NDArray[np.bool_]:
    """(N,) where error and entropy are both above the quantile of their data set."""
    errors, entropies, datasets = _columns(difficulties)
    noisy = np.zeros(len(difficulties), bool)
    for name in np.unique(datasets):
        here = datasets == name
        noisy[here] = (errors[here] > np.quantile(errors[here], quantile)) & (
            entropies[here] > np.quantile(entropies[here], quantile)
        )
    return noisy


def complexity(difficulties: Sequence[Difficulty]) -> npt.NDArray[np.float64]:
    """(N,) mean of the ranks of error and entropy within the data set, from 0 (simple) to 1."""
    errors, entropies, datasets = _columns(difficulties)
    ranks = np.zeros(len(difficulties))
    for name in np.unique(datasets):
        here = datasets == name
        steps = max(1, here.sum() - 1)
        ranks[here] = (rankdata(errors[here]) + rankdata(entropies[here]) - 2) / (2 * steps)
    return ranks


def training_order(
    difficulties: Sequence[Difficulty], settings: CurriculumSettings, epochs: float, seed: int
) -> list[str]:
    """The subjects of a whole run, once a group, epoch after epoch.

    The order is fixed before training: the position in it is all that a resumed run needs.

    Args:
        difficulties: (N,) training subjects.
        settings: filter and order.
        epochs: passes over the subjects; a part of one takes the first subjects of the order.
        seed: of the random order, and of that among equals.

    Raises:
        ConfigError: no subject is left.
    """
    noisy = noise_dominated(difficulties, settings.noise_quantile)
    kept = np.flatnonzero(~noisy) if settings.filter else np.arange(len(difficulties))
    if not len(kept):
        raise ConfigError("no training subject is left after the filter: raise noise_quantile")
    levels = complexity(difficulties)
    order: list[str] = []
    total = round(epochs * len(kept))
    epoch = 0
    while len(order) < total:
        shuffled = np.random.default_rng([seed, epoch]).permutation(kept)
        if settings.order:
            shuffled = shuffled[np.argsort(levels[shuffled], kind="stable")]
        order += [difficulties[place].subject_id for place in shuffled]
        epoch += 1
    return order[:total]


def plain_order(subject_ids: Sequence[str], epochs: float, seed: int) -> list[str]:
    """The same without a curriculum: every subject, in random order in each epoch."""
    blank = [Difficulty(subject_id, "", 0.0, 0.0) for subject_id in subject_ids]
    return training_order(blank, CurriculumSettings(filter=False, order=False), epochs, seed)


def write_difficulties(path: Path, difficulties: Sequence[Difficulty], settings: CurriculumSettings) -> None:
    """Write a CSV table of both dimensions and what was kept."""
    noisy = noise_dominated(difficulties, settings.noise_quantile)
    rows = zip(difficulties, complexity(difficulties), noisy, strict=True)
    lines = ["subject_id,dataset,error,entropy,complexity,kept"]
    for item, level, out in rows:
        kept = int(not (settings.filter and out))
        lines.append(f"{item.subject_id},{item.dataset},{item.error:.8g},{item.entropy:.6f},{level:.6f},{kept}")
    write_text_atomic(path, "\n".join(lines) + "\n")


def plot_difficulties(path: Path, difficulties: Sequence[Difficulty], settings: CurriculumSettings) -> None:
    """Plot both dimensions, a panel a data set, with what was kept and what was dropped, as a PNG file."""
    noisy = noise_dominated(difficulties, settings.noise_quantile) & settings.filter
    errors, entropies, datasets = _columns(difficulties)
    names = list(dict.fromkeys(datasets.tolist()))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure((4.2 * columns + 0.4, 3.4 * rows + 0.5), 120)
    for place, name in enumerate(names, start=1):
        axes: Any = figure.add_subplot(rows, columns, place)
        here = datasets == name
        for chosen, colour, label in ((here & ~noisy, BLUE, "kept"), (here & noisy, VERMILLION, "dropped as noise")):
            axes.scatter(
                entropies[chosen],
                errors[chosen],
                s=9,
                alpha=0.6,
                color=colour,
                label=f"{label}: {chosen.sum()}",
                linewidths=0,
            )
        if settings.filter:
            axes.axvline(np.quantile(entropies[here], settings.noise_quantile), color=MUTED, lw=0.8, ls="--")
            axes.axhline(np.quantile(errors[here], settings.noise_quantile), color=MUTED, lw=0.8, ls="--")
        if (errors[here] > 0).all():
            axes.set_yscale("log")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("normalised permutation entropy", fontsize=9)
        axes.set_ylabel("reference's error", fontsize=9)
        axes.legend(fontsize=8, frameon=False)
        tidy(axes)
    figure.tight_layout()
    save_png(figure, path)


def _history(source: EpisodeSource, subject_id: str) -> npt.NDArray[np.float64]:
    if isinstance(source, DecisionSource):
        return np.asarray(source.cases.by_id(subject_id).history, dtype=np.float64)
    if isinstance(source, ForecastSource):
        return np.asarray(source.loaded.window(subject_id).history[:, 0], dtype=np.float64)
    raise ConfigError(f"no history is known for a {type(source).__name__}")


def _columns(
    difficulties: Sequence[Difficulty],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.str_]]:
    return (
        np.array([item.error for item in difficulties]),
        np.array([item.entropy for item in difficulties]),
        np.array([item.dataset for item in difficulties], dtype=str),
    )
