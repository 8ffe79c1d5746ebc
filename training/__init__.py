"""Training of language-model agents on episodes."""

if __name__ != "castgym.training":
    raise ImportError(
        f"this folder is the package 'castgym.training', but it was imported as {__name__!r}. "
        "Install the project (pip install -e .) and import castgym.training instead."
    )
