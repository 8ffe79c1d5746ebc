"""Examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import castgym


def modules_with_examples() -> list[str]:
    found = []
    for info in pkgutil.walk_packages(castgym.__path__, "castgym."):
        spec = info.module_finder.find_spec(info.name, None)  # type: ignore[call-arg]
        loader = spec.loader if spec is not None else None
        source = loader.get_source(info.name) if hasattr(loader, "get_source") else ""
        if ">>> " in (source or ""):
            found.append(info.name)
    return found


EXAMPLES = modules_with_examples()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_module_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
