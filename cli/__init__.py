"""The `castgym` command line: a thin layer over all others."""

if __name__ != "castgym.cli":
    raise ImportError(
        f"this folder is the package 'castgym.cli', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.cli instead."
    )
