"""The folder in which castgym keeps what it can make again."""

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "CASTGYM_CACHE"
"""Environment variable that names the cache folder."""


def cache_folder() -> Path:
    """Where built case sets and forecasts are kept: `$CASTGYM_CACHE`, or the user's cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("castgym"))
