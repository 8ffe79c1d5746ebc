"""Forecast runs side by side: means, wins and reductions by hand, intervals of blocks, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from castgym.data.errors import ConfigError, DataError
from castgym.evaluation.block_bootstrap import block_length, resampled_means
from castgym.evaluation.forecast_report import build_forecast_report
from castgym.evaluation.forecast_runs import ForecastRow, ForecastRun, ForecastRunConfig, open_forecast_run
from castgym.evaluation.forecast_table import compare_forecasts, mse_interval
from castgym.evaluation.run_folder import case_ids_digest

SETS = {"A": 40, "B": 30}


def write_run(folder: Path, policy: str, errors: Mapping[str, np.ndarray], **changes: Any) -> ForecastRun:
    """A complete run whose MSE are given, and whose MAE are their roots; NaN is the infrastructure's fault."""
    ids = [f"{name}-{number:03d}" for name, values in errors.items() for number in range(len(values))]
    config = ForecastRunConfig(
        **{
            "policy": policy,
            "hindsight": policy == "truth",
            "case_source": "embedded",
            "fingerprint": "f",
            "case_ids": case_ids_digest(ids),
            "n_cases": len(ids),
            "repeats": 1,
            "seed": 0,
            "version": "0",
            "options": {},
            "window_sets": dict.fromkeys(errors, "x"),
            "selection": {"split": "test", "stride": 96, "overlap": 1},
            "conditions": {},
            **changes,
        }
    )
    with open_forecast_run(folder / policy, config) as writer:
        for name, values in errors.items():
            writer.append([row(f"{name}-{number:03d}", name, number, value) for number, value in enumerate(values)])
    return ForecastRun(folder / policy)


def row(case_id: str, dataset: str, number: int, mse: float) -> ForecastRow:
    failed = bool(np.isnan(mse))
    return ForecastRow(
        case_id=case_id,
        repeat=0,
        dataset=dataset,
        origin=f"2020-01-01T{number:03d}",
        outcome="infrastructure_error" if failed else "completed",
        valid=not failed,
        fault=None,
        mse=None if failed else float(mse),
        mae=None if failed else float(np.sqrt(mse)),
        reward=None if failed else 0.5,
        turns=3,
        calls=(),
        answer=None,
        seconds=0.1,
        error="connection" if failed else None,
    )


def constant(a: float, b: float) -> dict[str, np.ndarray]:
    return {"A": np.full(SETS["A"], a), "B": np.full(SETS["B"], b)}


class TestTable:
    def test_means_wins_and_reductions_by_hand(self, tmp_path: Path) -> None:
        runs = [
            write_run(tmp_path, "ours", constant(4.0, 9.0)),
            write_run(tmp_path, "other", constant(8.0, 6.0)),
            write_run(tmp_path, "truth", constant(0.0, 0.0)),
        ]
        table = compare_forecasts(runs, "other")
        assert table.means["mse"]["ours"].to_dict() == {"A": 4.0, "B": 9.0}
        assert table.means["mae"]["ours"].to_dict() == {"A": 2.0, "B": 3.0}
        assert table.wins["mse"].to_dict() == {"ours": 1, "other": 1}
        # (8 - 4) / 8 and (6 - 9) / 6, averaged (Cast-R1, A.5).
        point, low, high = table.reduction.loc["ours"]
        assert point == low == high == pytest.approx(100 * (0.5 - 0.5) / 2)
        assert mse_interval(table, "ours", "B").estimate == 3.0
        assert np.isnan(table.reduction["reduction"]["other"])

    def test_the_reference_is_the_best_that_is_no_hindsight(self, tmp_path: Path) -> None:
        runs = [write_run(tmp_path, name, constant(value, value)) for name, value in (("a", 2.0), ("b", 1.0))]
        assert compare_forecasts([*runs, write_run(tmp_path, "truth", constant(0.5, 0.5))]).reference == "b"

    def test_a_window_that_one_policy_lost_is_left_out_for_all(self, tmp_path: Path) -> None:
        lost = constant(1.0, 1.0)
        lost["A"][3] = np.nan
        spoilt = constant(2.0, 2.0)
        spoilt["A"][3] = 1e9
        table = compare_forecasts([write_run(tmp_path, "a", lost), write_run(tmp_path, "b", spoilt)])
        assert table.means["mse"]["b"]["A"] == 2.0
        assert set(table.means["left_out"]) == {1}
        assert table.means["windows"]["a"]["A"] == SETS["A"] - 1

    def test_intervals_are_paired(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        hard = {name: rng.gamma(2.0, 50.0, size) for name, size in SETS.items()}
        better = {name: values - 1 for name, values in hard.items()}
        table = compare_forecasts([write_run(tmp_path, "a", hard), write_run(tmp_path, "b", better)], "a")
        interval = mse_interval(table, "b", "A")
        assert interval.high < 0
        assert interval.high - interval.low < 1e-6

    def test_a_report_names_winner_reference_and_intervals(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(1)
        runs = [
            write_run(tmp_path, name, {key: scale * rng.gamma(9.0, 1.0, size) for key, size in SETS.items()})
            for name, scale in (("ours", 1.0), ("other", 3.0))
        ]
        build_forecast_report(runs, "other", tmp_path / "report")
        text = (tmp_path / "report" / "report.md").read_text()
        assert "| ours | 2 | 2 | +6" in text
        assert "The reference is other" in text
        for name in ("table.csv", "differences.csv", "reduction.png"):
            assert (tmp_path / "report" / name).stat().st_size > 0


class TestRefusals:
    def test_incomplete_runs(self, tmp_path: Path) -> None:
        write_run(tmp_path, "a", constant(1.0, 1.0))
        path = tmp_path / "a" / "rows.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        with pytest.raises(ConfigError, match="1 of 70 episodes are missing"):
            compare_forecasts([ForecastRun(tmp_path / "a")])

    def test_other_windows_or_data(self, tmp_path: Path) -> None:
        a = write_run(tmp_path, "a", constant(1.0, 1.0))
        other = write_run(tmp_path, "b", {"A": np.ones(SETS["A"]), "B": np.ones(SETS["B"] + 1)})
        with pytest.raises(ConfigError, match="different windows"):
            compare_forecasts([a, other])
        changed = write_run(tmp_path, "c", constant(1.0, 1.0), window_sets={"A": "x", "B": "y"})
        with pytest.raises(ConfigError, match="different data"):
            compare_forecasts([a, changed])

    def test_a_row_whose_answer_is_no_text(self) -> None:
        with pytest.raises(DataError, match="answer of another kind"):
            ForecastRow.from_json({**row("A-000", "A", 0, 1.0).to_json(), "answer": 5})

    def test_an_unknown_reference(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no run of 'nobody'"):
            compare_forecasts([write_run(tmp_path, "a", constant(1.0, 1.0))], "nobody")

    def test_a_decision_run_is_no_forecast_run(self, tmp_path: Path) -> None:
        write_run(tmp_path, "a", constant(1.0, 1.0))
        path = tmp_path / "a" / "config.json"
        path.write_text(path.read_text().replace('"kind": "forecasts"', '"kind": "decisions"'))
        with pytest.raises(DataError, match="expected a run of forecasts"):
            ForecastRun(tmp_path / "a")


class TestBlocks:
    def test_blocks_of_one_are_the_plain_bootstrap(self) -> None:
        rng = np.random.default_rng(0)
        values = rng.normal(size=(500, 1))
        spread = resampled_means(values, 1, 4000, np.random.default_rng(1)).std()
        assert spread == pytest.approx(values.std() / np.sqrt(500), rel=0.05)

    def test_blocks_see_the_dependence_of_neighbours(self) -> None:
        rng = np.random.default_rng(0)
        values = np.zeros((4000, 1))
        for step in range(1, len(values)):
            values[step] = 0.8 * values[step - 1] + rng.normal()
        plain = resampled_means(values, 1, 2000, np.random.default_rng(1)).std()
        blocks = resampled_means(values, 50, 2000, np.random.default_rng(1)).std()
        # The long-run standard deviation of an AR(1) with 0.8 is three times its own.
        assert 2.3 < blocks / plain < 3.3

    def test_every_column_uses_the_same_draws(self) -> None:
        values = np.random.default_rng(0).normal(size=(60, 1))
        drawn = resampled_means(np.hstack([values, values + 1]), 5, 100, np.random.default_rng(0))
        np.testing.assert_allclose(drawn[:, 1] - drawn[:, 0], 1.0)

    def test_too_few_windows_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="at least two blocks"):
            resampled_means(np.ones((5, 1)), 3, 10, np.random.default_rng(0))
        assert block_length(1) == 1
