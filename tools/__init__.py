"""What an agent may call: planning, forecasters, the ledger, and the parsing of its calls."""

if __name__ != "castgym.tools":
    raise ImportError(
        f"this folder is the package 'castgym.tools', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.tools instead."
    )
