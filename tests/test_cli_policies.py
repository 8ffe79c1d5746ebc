"""One's own policies through the installed command, which does not look into the current folder by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

CASTGYM = Path(sys.executable).parent / "castgym"

MODULE = """
from castgym.agents.fixed import ClassicalPolicy

class Mine(ClassicalPolicy):
    def __init__(self):
        super().__init__("weekly_repeat")
        self.name = "weekly_repeat"

class Other:
    pass

class Broken(ClassicalPolicy):
    def __init__(self):
        raise ValueError("no endpoint")
"""


def evaluate(folder: Path, policy: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CASTGYM), "evaluate", "--policy", policy, "--limit", "2", "--out", "runs"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
        timeout=300,
    )


def test_a_policy_is_imported_from_the_folder_where_the_command_is_called(tmp_path: Path) -> None:
    (tmp_path / "our_policies.py").write_text(MODULE)
    result = evaluate(tmp_path, "our_policies:Mine")
    assert result.returncode == 0, result.stderr
    rows = (tmp_path / "runs" / "weekly_repeat" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["valid"] for row in rows] == [True, True]


def test_what_is_no_policy_is_named_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "our_policies.py").write_text(MODULE)
    for policy, message in (
        ("our_policies:Other", "our_policies:Other gave a Other: expected a castgym.agents.base.Policy"),
        ("our_policies:Nobody", "no policy our_policies:Nobody: AttributeError"),
        ("no_such_module:Mine", "no policy no_such_module:Mine: ModuleNotFoundError"),
        ("our_policies:Broken", "no policy our_policies:Broken: ValueError: no endpoint"),
    ):
        result = evaluate(tmp_path, policy)
        assert result.returncode == 2
        assert message in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr
