"""Runs on disk, scoring, aggregation, bootstrap intervals and reports."""

if __name__ != "castgym.evaluation":
    raise ImportError(
        f"this folder is the package 'castgym.evaluation', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.evaluation instead."
    )
