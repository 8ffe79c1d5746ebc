"""The command line: what a user types, what it prints, and how it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CASTGYM = Path(sys.executable).parent / "castgym"


def castgym(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command; its cache is the one of this test session."""
    return subprocess.run(
        [str(CASTGYM), *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
        timeout=300,
    )


def wait_for_rows(log: Path, count: int) -> None:
    """Until a run has written so many result rows: only then is there something that a signal must not lose."""
    deadline = time.monotonic() + 120
    while not log.exists() or log.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


class TestEvaluateAndReport:
    def test_policies_are_scored_and_reported(self, tmp_path: Path) -> None:
        names = ("hour_of_day_empirical", "weekday_empirical", "perfect_demand")
        policies = [item for name in names for item in ("--policy", name)]
        result = castgym("evaluate", *policies, "--limit", "40", "--out", "runs", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert [len(rows(tmp_path / "runs" / name)) for name in names] == [40] * 3
        result = castgym("report", *(f"runs/{name}" for name in names), "--out", "report", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "hour_of_day_empirical" in result.stdout
        for name in ("report.md", "table.csv", "cohorts.csv", "frontier.png", "plan.png", "report.html"):
            assert (tmp_path / "report" / name).stat().st_size > 0

    def test_a_killed_run_continues_where_it_stopped(self, tmp_path: Path) -> None:
        command = ["evaluate", "--policy", "backtest_8", "--limit", "300", "--out", "runs", "--workers", "1"]
        log = tmp_path / "runs" / "backtest_8" / "rows.jsonl"
        with subprocess.Popen([str(CASTGYM), *command], cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            wait_for_rows(log, 5)
            process.send_signal(signal.SIGKILL)
        before = log.read_bytes()
        done = before.count(b"\n")
        assert 5 <= done < 300
        assert castgym(*command, cwd=tmp_path).returncode == 0
        assert log.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
        assert len({row["case_id"] for row in rows(log.parent)}) == len(rows(log.parent)) == 300
        whole = castgym(*command[:-4], "--out", "fresh", cwd=tmp_path)
        assert whole.returncode == 0
        scores = [
            {row["case_id"]: row["S"] for row in rows(tmp_path / folder / "backtest_8")} for folder in ("runs", "fresh")
        ]
        assert scores[0] == scores[1]

    def test_an_interrupt_keeps_what_is_finished_and_says_so(self, tmp_path: Path) -> None:
        command = [
            str(CASTGYM),
            "evaluate",
            "--policy",
            "backtest_8",
            "--repeats",
            "4",
            "--out",
            "runs",
            "--workers",
            "2",
        ]
        log = tmp_path / "runs" / "backtest_8" / "rows.jsonl"
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A shell lets its background jobs ignore the signal, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            wait_for_rows(log, 2)  # an append that is interrupted before it is durable is taken back: one row stays
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert "continues" in errors
        assert rows(log.parent)

    def test_both_paths_write_the_same_rows(self, tmp_path: Path) -> None:
        shared = ["evaluate", "--policy", "backtest_8", "--limit", "30", "--workers", "1"]
        assert castgym(*shared, "--out", "played", cwd=tmp_path).returncode == 0
        assert castgym(*shared, "--vectorised", "--out", "decided", cwd=tmp_path).returncode == 0
        found = [
            [{**row, "seconds": 0} for row in rows(tmp_path / folder / "backtest_8")]
            for folder in ("played", "decided")
        ]
        assert found[0] == found[1]

    def test_kept_episodes_hold_prompts_and_responses(self, tmp_path: Path) -> None:
        command = ["evaluate", "--policy", "weekly_repeat", "--limit", "3", "--keep-episodes", "--out", "runs"]
        assert castgym(*command, cwd=tmp_path).returncode == 0
        lines = (tmp_path / "runs" / "weekly_repeat" / "episodes.jsonl").read_text().splitlines()
        episode = json.loads(lines[0])
        assert len(lines) == 3
        assert episode["steps"][0]["messages"][0]["role"] == "system"
        assert episode["steps"][0]["response"]["name"] == "classical_plan"


class TestData:
    def test_a_simulated_set_is_built_shown_and_evaluated(self, tmp_path: Path) -> None:
        assert castgym("data", "simulate", "--out", "cases", "--seed", "3", cwd=tmp_path).returncode == 0
        shown = castgym("data", "show", "cases", cwd=tmp_path)
        assert "electricity-july" in shown.stdout
        result = castgym("evaluate", "-p", "weekly_repeat", "--cases", "cases", "--limit", "5", cwd=tmp_path)
        assert result.returncode == 0, result.stderr

    @pytest.mark.slow
    def test_real_demand_is_built_and_scored(self, tmp_path: Path, eia930_files: list[Path]) -> None:
        built = castgym("data", "eia930", *eia930_files[-2:], "--out", "cases", "--train-stride", "30", cwd=tmp_path)
        assert built.returncode == 0, built.stderr
        command = [
            "evaluate",
            "-p",
            "hour_of_day_empirical",
            "-p",
            "perfect_demand",
            "--vectorised",
            "--cases",
            "cases",
        ]
        assert castgym(*command, "--out", "runs", cwd=tmp_path).returncode == 0
        means = {}
        for name in ("hour_of_day_empirical", "perfect_demand"):
            losses: dict[str, list[float]] = {}
            for row in rows(tmp_path / "runs" / name):
                losses.setdefault(str(row["cohort"]), []).append(float(str(row["loss"])))
            means[name] = {cohort: sum(values) / len(values) for cohort, values in losses.items()}
        assert all(0.040 < value < 0.060 for value in means["hour_of_day_empirical"].values())
        assert all(0.013 <= value <= 0.017 for value in means["perfect_demand"].values())


class TestFaults:
    """A clear message on standard error, exit code 2, and nothing half-written."""

    def check(self, result: subprocess.CompletedProcess[str], *parts: str) -> None:
        assert result.returncode == 2, (result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        for part in parts:
            assert part in result.stderr

    def test_an_unknown_policy(self, tmp_path: Path) -> None:
        self.check(castgym("evaluate", "-p", "clairvoyant", cwd=tmp_path), "clairvoyant", "hour_of_day_empirical")
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_is_no_case_set(self, tmp_path: Path) -> None:
        self.check(castgym("evaluate", "-p", "all", "--cases", "nowhere", cwd=tmp_path), "no case set", "data simulate")

    def test_an_unknown_cohort(self, tmp_path: Path) -> None:
        self.check(castgym("evaluate", "-p", "all", "--cohort", "spring", cwd=tmp_path), "spring", "electricity-july")

    def test_another_selection_into_the_same_folder(self, tmp_path: Path) -> None:
        command = ["evaluate", "-p", "weekly_repeat", "--out", "runs"]
        assert castgym(*command, "--limit", "5", cwd=tmp_path).returncode == 0
        before = (tmp_path / "runs" / "weekly_repeat" / "rows.jsonl").read_bytes()
        self.check(castgym(*command, "--limit", "6", cwd=tmp_path), "another configuration", "--out")
        assert (tmp_path / "runs" / "weekly_repeat" / "rows.jsonl").read_bytes() == before

    def test_a_report_over_an_incomplete_run(self, tmp_path: Path) -> None:
        assert castgym("evaluate", "-p", "weekly_repeat", "--limit", "5", "--out", "runs", cwd=tmp_path).returncode == 0
        log = tmp_path / "runs" / "weekly_repeat" / "rows.jsonl"
        log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:3]))
        self.check(castgym("report", "runs/weekly_repeat", "--out", "report", cwd=tmp_path), "2 of 5")
        assert not (tmp_path / "report").exists()

    def test_a_report_over_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        self.check(castgym("report", "empty", cwd=tmp_path), "no run")

    def test_runs_on_a_case_set_with_another_tariff(self, tmp_path: Path) -> None:
        assert castgym("data", "simulate", "--out", "cases", cwd=tmp_path).returncode == 0
        assert castgym("evaluate", "-p", "weekly_repeat", "--limit", "5", "--out", "one", cwd=tmp_path).returncode == 0
        rebuild = (
            "from dataclasses import replace; from pathlib import Path;"
            "from castgym.envs.casesets import load_cases; from castgym.data.store import save_case_set;"
            "from castgym.data.tariff import OFFLINE_TARIFF as T, Tariff; loaded = load_cases('cases');"
            "dear = replace(loaded.case_set, tariff=Tariff(2 * T.budget, T.rates));"
            "save_case_set(Path('dear'), dear, loaded.targets)"
        )
        subprocess.run([sys.executable, "-c", rebuild], cwd=tmp_path, check=True)
        other = ["evaluate", "-p", "weekday_empirical", "--limit", "5", "--cases", "dear", "--out", "two"]
        assert castgym(*other, cwd=tmp_path).returncode == 0
        result = castgym("report", "one/weekly_repeat", "two/weekday_empirical", "--out", "report", cwd=tmp_path)
        self.check(result, "tariff")

    def test_an_existing_case_set_is_not_replaced_unasked(self, tmp_path: Path) -> None:
        (tmp_path / "cases").mkdir()
        (tmp_path / "cases" / "mine.txt").write_text("keep")
        self.check(castgym("data", "simulate", "--out", "cases", cwd=tmp_path), "exists already", "--overwrite")
        assert (tmp_path / "cases" / "mine.txt").read_text() == "keep"

    @pytest.mark.parametrize(
        ("content", "part"),
        [
            (b"", "empty"),
            (b"utc_hour_ending,AAA\n", "utc_hour_ending"),
            (b"when,AAA\n2023-01-01 00:00:00,5\n", "column"),
            ("utc_hour_ending,AAA\n2023-01-01 00:00:00,5\n".encode("utf-16"), "UTF-8"),
        ],
    )
    def test_files_that_are_no_eia930_data(self, tmp_path: Path, content: bytes, part: str) -> None:
        (tmp_path / "file.csv").write_bytes(content)
        self.check(castgym("data", "eia930", "file.csv", "--out", "cases", cwd=tmp_path), "file.csv")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file.csv"]

    def test_a_missing_file_and_a_folder(self, tmp_path: Path) -> None:
        self.check(castgym("data", "eia930", "nope.csv", "--out", "cases", cwd=tmp_path), "nope.csv")
        self.check(castgym("data", "eia930", tmp_path, "--out", "cases", cwd=tmp_path), str(tmp_path))

    def test_a_damaged_case_set(self, tmp_path: Path) -> None:
        assert castgym("data", "simulate", "--out", "cases", cwd=tmp_path).returncode == 0
        content = bytearray((tmp_path / "cases" / "history.npy").read_bytes())
        content[-1] ^= 1
        (tmp_path / "cases" / "history.npy").write_bytes(content)
        self.check(castgym("data", "show", "cases", cwd=tmp_path), "history.npy", "build the case set again")
