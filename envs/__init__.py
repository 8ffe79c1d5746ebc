"""Episodes and the Gymnasium environments built on them."""

if __name__ != "castgym.envs":
    raise ImportError(
        f"this folder is the package 'castgym.envs', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.envs instead."
    )
