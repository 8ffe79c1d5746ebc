"""Packaging: the wheel holds what git holds, and no folder can be imported under a wrong name."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("data", "tools", "envs", "agents", "evaluation", "training", "cli")


@pytest.mark.slow
def test_the_wheel_built_from_the_sdist_holds_every_tracked_file(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    wheel = next(tmp_path.glob("*.whl"))
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    tracked = {
        name for name in listing.stdout.split("\0") if name.startswith(tuple(f"{folder}/" for folder in FOLDERS))
    }
    expected = {f"castgym/{name}" for name in tracked} | {"castgym/__init__.py", "castgym/py.typed"}
    assert found == expected


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_refuses_to_be_imported_under_another_name(folder: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {folder}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert result.returncode != 0
    assert f"castgym.{folder}" in result.stderr


def test_the_package_works_from_a_folder_with_namesakes(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    code = "import castgym, castgym.envs.fwbench, castgym.cli.main; print(castgym.__version__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_core_needs_no_torch() -> None:
    """Everything but the foundation models imports and runs where torch is not installed."""
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "torch transformers fracast statsforecast trl openai yaml pyarrow".split():
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import castgym, castgym.cli.main, gymnasium

env = gymnasium.make("FWBench-v0", pool="no_tsfm")
env.reset(seed=0)
env.step('{"name": "catalog", "arguments": {}}')
env = gymnasium.make("CastR1-v0")
env.reset(seed=0)
env.step('<tool_call>{"name": "extract_data_quality", "arguments": {}}</tool_call>')
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
