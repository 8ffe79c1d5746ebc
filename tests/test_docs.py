"""What the README tells people to type works as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in FILES}
PYTHON = [
    pytest.param(code, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
]
EIA_FILES = "eia930/*.csv.gz"


def run_line(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, capture_output=True, text=True, timeout=900, env={**os.environ, "PATH": path}
    )


@pytest.mark.slow
def test_every_command_of_the_readme_runs_in_its_order(tmp_path: Path, eia930_files: list[Path]) -> None:
    """From an empty folder, with the real files where the README says that a user has put them."""
    (tmp_path / "eia930").mkdir()
    for file in eia930_files:
        (tmp_path / "eia930" / file.name).symlink_to(file)
    commands = [line for line in SHELL if not line.startswith(("make ", "source "))]
    assert any(EIA_FILES in line for line in commands)
    assert any(line.startswith("castgym evaluate") for line in commands)
    for line in commands:
        result = run_line(line, tmp_path)
        assert result.returncode == 0, (line, result.stdout, result.stderr)


def test_the_two_commands_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in SHELL:
        if line.startswith("make "):
            assert f"\n{line.split()[1]}:" in makefile
    assert "make demo" in SHELL
    assert "make test" in SHELL


@pytest.fixture(scope="module")
def folder_with_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples run: a folder that holds the runs of the embedded cases."""
    folder = tmp_path_factory.mktemp("docs")
    result = run_line("castgym evaluate -p hour_of_day_empirical -p weekday_empirical --vectorised", folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("code", PYTHON)
def test_every_python_example_runs(code: str, folder_with_runs: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder_with_runs, timeout=300
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_links_to_files_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (ROOT / target).exists() or (ROOT / "docs" / target).exists(), target
