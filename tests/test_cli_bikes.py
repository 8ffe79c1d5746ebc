"""`castgym data tfl` and `castgym data bikes`: what a user types, what it prints, and how it fails."""

import json
from pathlib import Path

import pytest
from test_bikes import simulate, without_nights
from test_bikes import write as write_counts
from test_cli import castgym
from tfl_extracts import NEW, hourly, season, write, write_season


@pytest.fixture(scope="module")
def extracts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_season(tmp_path_factory.mktemp("tfl"), season("2023-03-15", "2023-05-28 23:00"))


def test_extracts_become_a_case_set_that_is_evaluated(tmp_path: Path, extracts: list[Path]) -> None:
    options = ["--n-stations", "6", "--selection-start", "2023-04-10", "--selection-days", "5", "--train-stride", "5"]
    built = castgym("data", "tfl", *extracts, "--out", "cases", *options, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "48 test" in built.stdout and "duplicate" in built.stdout and "0 hours unknown" in built.stdout
    source = json.loads((tmp_path / "cases" / "manifest.json").read_text())["source"]
    assert source["options"]["selection"] == {"start": "2023-04-10", "days": 5, "stations": 6}
    scored = castgym("evaluate", "-p", "weekly_repeat", "--cases", "cases", "--limit", "5", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr


def test_a_wide_table_with_closed_nights_becomes_a_case_set(tmp_path: Path) -> None:
    write_counts(tmp_path / "counts.csv.gz", without_nights(simulate("2023-06-01", "2023-08-01")))
    command = ["data", "bikes", "counts.csv.gz", "--out", "cases", "--cohort", "7:20,21", "--calendar", "Europe/Oslo"]
    command += ["--unit", "arrivals/hour", "--prefix", "OSLO", "--lead", "day_ahead", "--station", "north:1"]
    refused = castgym(*command, cwd=tmp_path)
    assert refused.returncode == 2 and "closed_hours" in refused.stderr
    assert not (tmp_path / "cases").exists()
    built = castgym(*command, "--closed-hours", "00-06", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "2 test" in built.stdout and "unknown station hours taken as zero" in built.stdout
    first = json.loads((tmp_path / "cases" / "cases.jsonl").read_text().splitlines()[0])
    assert first["timezone"] == "Europe/Oslo" and first["unit"] == "arrivals/hour"
    assert first["case_id"].startswith("OSLO-north:1-2023-0")


def test_real_arrivals_become_a_case_set(tmp_path: Path, norway_bikes: Path) -> None:
    options = ["--calendar", "Europe/Oslo", "--unit", "arrivals/hour", "--closed-hours", "00-06"]
    built = castgym(
        "data", "bikes", norway_bikes, "--out", "cases", "--cohort", "8:1,3,5,7,9,11", *options, cwd=tmp_path
    )
    assert built.returncode == 0, built.stderr
    assert "1121 cases (295 train, 411 calibration, 415 test)" in built.stdout
    assert "52380 unknown station hours taken as zero; 49 have a count" in built.stdout


class TestFaults:
    """A clear message on standard error, exit code 2, and nothing half-written."""

    def check(self, folder: Path, *command: str | Path, parts: tuple[str, ...]) -> None:
        before = sorted(path.name for path in folder.iterdir())
        result = castgym("data", *command, "--out", "cases", cwd=folder)
        assert result.returncode == 2, (result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        for part in parts:
            assert part in result.stderr
        assert sorted(path.name for path in folder.iterdir()) == before

    @pytest.mark.parametrize(
        ("command", "content", "part"),
        [
            ("tfl", ",".join(NEW).encode("utf-16"), "UTF-8"),
            ("tfl", (",".join(NEW) + "\n1,soon,1057,,,,,,,,\n").encode(), "'soon' in line 2"),
            ("tfl", b"430,573,55123200,180\n", "seconds-2019"),
            ("bikes", b"utc_hour_start,a\n2023-06-01 00:00:00,-1\n", "line 2, column 'a'"),
        ],
    )
    def test_files_of_another_kind(self, tmp_path: Path, command: str, content: bytes, part: str) -> None:
        (tmp_path / "file.csv").write_bytes(content)
        self.check(tmp_path, command, "file.csv", parts=("file.csv", part))

    def test_a_folder_and_options_that_do_not_fit(self, tmp_path: Path) -> None:
        self.check(tmp_path, "tfl", tmp_path, parts=("is a folder",))
        write(tmp_path / "a.csv", hourly("2023-04-03", 24))
        self.check(tmp_path, "tfl", "a.csv", "--layout", "csv", parts=("layout", "seconds-2019"))
        self.check(tmp_path, "tfl", "a.csv", "--cohort", "5:32", parts=("cohort such as",))
        self.check(tmp_path, "tfl", "a.csv", "--test-year", "2023", parts=("2023-04-01", "selection_start"))

    def test_a_sample_that_is_too_short(self, tmp_path: Path, tfl_sample: Path) -> None:
        command = ["tfl", tfl_sample, "--layout", "seconds-2019"]
        named = ["--test-year", "2020", "--cohort", "10:5", "--selection-start", "2020-09-30"]
        self.check(tmp_path, *command, *named, parts=("no test case is left of 40 windows (outside_data 40)",))
