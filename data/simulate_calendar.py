"""Public holidays of the simulated years, written down so that no installed package can move a simulated value."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# Month/day, weekdays that stand for a holiday on a weekend included.
_HOLIDAYS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "United States": {
            2018: "1/1 1/15 2/19 5/28 7/4 9/3 10/8 11/11 11/12 11/22 12/25",
            2019: "1/1 1/21 2/18 5/27 7/4 9/2 10/14 11/11 11/28 12/25",
            2020: "1/1 1/20 2/17 5/25 7/3 7/4 9/7 10/12 11/11 11/26 12/25",
            2021: "1/1 1/18 2/15 5/31 6/18 6/19 7/4 7/5 9/6 10/11 11/11 11/25 12/24 12/25 12/31",
            2022: "1/1 1/17 2/21 5/30 6/19 6/20 7/4 9/5 10/10 11/11 11/24 12/25 12/26",
            2023: "1/1 1/2 1/16 2/20 5/29 6/19 7/4 9/4 10/9 11/10 11/11 11/23 12/25",
        },
        "England": {
            2021: "1/1 4/2 4/5 5/3 5/31 8/30 12/25 12/26 12/27 12/28",
            2022: "1/1 1/3 4/15 4/18 5/2 6/2 6/3 8/29 9/19 12/25 12/26 12/27",
            2023: "1/1 1/2 4/7 4/10 5/1 5/8 5/29 8/28 12/25 12/26",
        },
        "Germany": {2021: "1/1 4/2 4/5 5/1 5/13 5/24 10/3 12/25 12/26"},
    }
)


def free_days(local: pd.DatetimeIndex, region: str) -> NDArray[np.bool_]:
    """Whether each hour falls on a Saturday, a Sunday or a public holiday, shape (T, 1).

    Args:
        local: hours on the local calendar.
        region: `United States` (2018 to 2023), `England` (2021 to 2023) or `Germany` (2021).

    Raises:
        KeyError: the holidays of the region or of a year are not written down.
    """
    years = _HOLIDAYS[region]
    holidays = [pd.Timestamp(f"{year}/{day}") for year in sorted(set(local.year)) for day in years[year].split()]
    days = local.normalize().tz_localize(None)
    free: NDArray[np.bool_] = np.asarray(local.day_of_week >= 5) | days.isin(pd.DatetimeIndex(holidays))
    return free[:, None]
