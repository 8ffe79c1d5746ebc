"""Shared formatting of diagnostic reports: compact numbers, plain JSON, and text within a hard character budget."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from castgym.data.errors import ConfigError

SUMMARY_BUDGET = 600
"""Default length of a summary, characters."""

_MORE = " ..."
_NAME_LENGTH = 24


def compact(value: float | None) -> str:
    """Write a number in four significant digits; plain decimals from 0.0001 to 999999, `n/a` for `None`."""
    if value is None:
        return "n/a"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -4 <= magnitude < 6:
        return f"{value:.4g}"
    text = f"{value:.{max(0, 3 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short_name(name: str) -> str:
    """Cut a channel's name so that it cannot fill a summary; white space becomes single blanks."""
    name = " ".join(name.split())
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 3] + "..."


def fit_lines(lines: Sequence[Sequence[str]], budget: int) -> str:
    """Join phrases into lines and keep the longest prefix of whole phrases that fits.

    Args:
        lines: phrases of each line, the most important first; a phrase is never cut.
        budget: most characters of the text, counted with line breaks.

    Returns:
        The text, at most `budget` characters; it ends in `...` where phrases were left out and the mark fits.

    Raises:
        ConfigError: the budget is negative.
    """
    if budget < 0:
        raise ConfigError(f"budget: expected at least 0 characters, found {budget}")
    whole = "\n".join(", ".join(line) for line in lines)
    if len(whole) <= budget:
        return whole
    text = ""
    for line in lines:
        for position, phrase in enumerate(line):
            separator = ", " if position else "\n" if text else ""
            if len(text) + len(separator) + len(phrase) + len(_MORE) > budget:
                return (text + _MORE if text else "...") if budget >= len(_MORE) else ""
            text += separator + phrase
    return text


class DiagnosticReport(ABC):
    """Base of the five reports: frozen dataclasses of numbers, strings, `None` and tuples of those."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """This report as plain JSON: finite numbers, strings, `None`, lists and objects."""
        content: dict[str, Any] = _plain(self)
        return content

    def summary(self, budget: int = SUMMARY_BUDGET) -> str:
        """This report as text for a prompt, target first, at most `budget` characters.

        Raises:
            ConfigError: the budget is negative.
        """
        return fit_lines(self._lines(), budget)

    @abstractmethod
    def _lines(self) -> list[list[str]]:
        """Phrases of each line, the most important first."""


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
