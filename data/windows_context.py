"""Text that an agent may read at the forecast origin of an electricity price window.

The rule: the text is made of constants of the market and of the calendar of the horizon, and of nothing that was
measured. Whoever knows the market and the origin can write it, so it cannot tell of a price.
"""

from dataclasses import dataclass
from typing import Any

import holidays
import pandas as pd

SEASONS = ("winter", "spring", "summer", "autumn")
"""Meteorological seasons of the northern hemisphere; winter is December to February."""


@dataclass(frozen=True, slots=True)
class HolidayRegion:
    """A region whose public holidays matter for a market.

    Attributes:
        name: in the text, such as `Belgium`.
        country: two-letter code.
        subdivision: part of the country with holidays of its own.
    """

    name: str
    country: str
    subdivision: str | None = None


@dataclass(frozen=True, slots=True)
class MarketContext:
    """What is known of an electricity market without any measurement.

    Attributes:
        market: name of the market and its price, such as `Belgium, day-ahead price`.
        unit: currency and energy of the price, such as `EUR/MWh`.
        known: the day-ahead series in words, with their unit.
        regions: whose public holidays are named.
    """

    market: str
    unit: str
    known: str
    regions: tuple[HolidayRegion, ...]

    def text(self, horizon: pd.DatetimeIndex) -> str:
        """The context of a horizon, one fact a line.

        Args:
            horizon: times to forecast, on the clock of the market, at least one.

        Returns:
            The market, the unit, the series known over the horizon, then a line for each day of the horizon: weekday,
            date, season, whether it is a working day, in which regions it is a public holiday, and its hours.
        """
        lines = [f"Market: {self.market}, in {self.unit}.", f"Known for every hour of the horizon: {self.known}."]
        for day in horizon.normalize().unique():
            hours = horizon[horizon.normalize() == day]
            lines.append(
                f"Target day: {day:%A %Y-%m-%d}, {SEASONS[day.month % 12 // 3]}, {self._kind(day)}, hours "
                f"{hours[0]:%H:%M} to {hours[-1]:%H:%M}."
            )
        return "\n".join(lines)

    def _kind(self, day: pd.Timestamp) -> str:
        """Weekend or working day, and where the day is a public holiday."""
        free = [
            region.name
            for region in self.regions
            if day.date() in holidays.country_holidays(region.country, subdiv=region.subdivision, years=day.year)
        ]
        kind = "weekend" if day.day_of_week >= 5 else "weekday"
        return f"{kind}, public holiday in {', '.join(free)}" if free else f"{kind}, no public holiday"

    def to_json(self) -> dict[str, Any]:
        """The constants of the rule."""
        return {
            "market": self.market,
            "unit": self.unit,
            "known": self.known,
            "regions": [[region.name, region.country, region.subdivision] for region in self.regions],
        }
