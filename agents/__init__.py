"""Who decides: fixed policies, selectors and oracles."""

if __name__ != "castgym.agents":
    raise ImportError(
        f"this folder is the package 'castgym.agents', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.agents instead."
    )
