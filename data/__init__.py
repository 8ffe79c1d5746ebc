"""Cases and where they come from: the lowest layer of castgym."""

if __name__ != "castgym.data":
    raise ImportError(
        f"this folder is the package 'castgym.data', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.data instead."
    )
