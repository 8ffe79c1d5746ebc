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
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
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
    commands = [line for line in SHELL if not line.startswith(("make ", "git ", "cd ", "pip "))]
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


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_every_python_example_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_to_files_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (ROOT / target).exists() or (ROOT / "docs" / target).exists(), target
