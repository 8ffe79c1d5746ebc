from collections import Counter

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castgym.data.errors import ConfigError
from castgym.envs.casesets import load_cases
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.sources import DecisionSource
from castgym.training.curriculum import (
    CurriculumSettings,
    Difficulty,
    complexity,
    measure_difficulty,
    noise_dominated,
    plain_order,
    plot_difficulties,
    training_order,
    write_difficulties,
)
from castgym.training.episode_settings import EpisodeSettings, spread_subjects

difficulty_lists = st.lists(
    st.tuples(st.sampled_from("ab"), st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=40
).map(lambda rows: [Difficulty(f"{name}{place}", name, error, pe) for place, (name, error, pe) in enumerate(rows)])


def grid(count=10):
    """Errors and entropies that rise in opposite directions, then a corner where both are high."""
    rows = [Difficulty(f"s{place}", "one", float(place), 1 - place / count) for place in range(count)]
    return [*rows, Difficulty("noisy", "one", 50.0, 0.99)]


def test_only_what_is_high_in_both_is_noise():
    assert [item.subject_id for item, out in zip(grid(), noise_dominated(grid(), 0.7), strict=True) if out] == ["noisy"]


def test_high_error_alone_is_no_reason_to_drop():
    rows = [*grid(), Difficulty("hard", "one", 1e9, 0.0)]
    assert not noise_dominated(rows, 0.7)[-1]


@given(difficulty_lists, st.floats(0.1, 0.9))
def test_the_filter_never_drops_more_than_the_share_above_the_quantile(rows, quantile):
    noisy = noise_dominated(rows, quantile)
    for name in "ab":
        held = [out for item, out in zip(rows, noisy, strict=True) if item.dataset == name]
        assert sum(held) <= (1 - quantile) * len(held) + 1


@given(difficulty_lists, st.floats(0.01, 100))
def test_the_unit_of_a_data_sets_error_does_not_matter(rows, unit):
    scaled = [Difficulty(i.subject_id, i.dataset, i.error * (unit if i.dataset == "a" else 1), i.entropy) for i in rows]
    if len({item.error for item in scaled}) == len({item.error for item in rows}):  # no underflow to equal errors
        np.testing.assert_allclose(complexity(scaled), complexity(rows), atol=1e-12)
    assert all(0 <= value <= 1 for value in complexity(rows))


def test_the_order_goes_from_simple_to_complex_in_each_epoch():
    rows, settings = grid(), CurriculumSettings()
    order = training_order(rows, settings, 2.0, seed=0)
    levels = dict(zip([item.subject_id for item in rows], complexity(rows), strict=True))
    first, second = [levels[name] for name in order[:10]], [levels[name] for name in order[10:]]
    assert first == sorted(first) and second == sorted(second)
    assert "noisy" not in order and set(Counter(order).values()) == {2}


def test_order_only_and_filter_only():
    rows = grid()
    ordered = training_order(rows, CurriculumSettings(filter=False), 1.0, seed=0)
    filtered = training_order(rows, CurriculumSettings(order=False), 1.0, seed=0)
    assert ordered[-1] == "noisy" and len(ordered) == 11
    assert "noisy" not in filtered and len(filtered) == 10
    levels = [complexity(rows)[int(name[1:])] for name in filtered]
    assert levels != sorted(levels)


def test_the_order_is_a_function_of_the_seed():
    ids = [f"s{place}" for place in range(50)]
    assert plain_order(ids, 1.5, seed=3) == plain_order(ids, 1.5, seed=3) != plain_order(ids, 1.5, seed=4)
    order = plain_order(ids, 1.5, seed=3)
    assert len(order) == 75 and sorted(order[:50]) == sorted(ids) and order[:25] != order[50:]


def test_a_filter_that_leaves_nothing_is_refused():
    with pytest.raises(ConfigError, match="no training subject is left"):
        training_order([], CurriculumSettings(), 1.0, seed=0)


def test_decisions_are_measured_by_the_free_plan_and_the_history():
    source = DecisionSource(load_cases(), "train", prompt_style="compact", answer_form="plan")
    ids = spread_subjects(source, 24)
    rows = measure_difficulty(source, ids, CurriculumSettings())
    assert [item.subject_id for item in rows] == ids
    assert all(item.error >= 0 and 0 < item.entropy < 1 for item in rows)
    assert {item.dataset for item in rows} == {source.dataset(name) for name in ids} and len(set(ids)) == 24


def test_windows_are_measured_by_the_reference_forecast(tmp_path):
    source = ForecastSource("embedded", "train", stride=240)
    ids = list(source.ids)
    rows = measure_difficulty(source, ids, CurriculumSettings())
    window, target = source.loaded.window(ids[0]), source.loaded.target(ids[0])
    last_day = window.history[-24:, 0]
    expected = np.mean((np.resize(last_day, len(target.actual)) - target.actual) ** 2)
    assert rows[0].error == pytest.approx(expected)
    write_difficulties(tmp_path / "c.csv", rows, CurriculumSettings())
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert len(lines) == len(rows) + 1 and lines[0].endswith("complexity,kept")
    plot_difficulties(tmp_path / "c.png", rows, CurriculumSettings())
    assert matplotlib.image.imread(tmp_path / "c.png").std() > 0.01


def test_the_truth_of_held_out_data_is_not_looked_at():
    held_out = EpisodeSettings(benchmark="fwbench").source("held_out")
    with pytest.raises(ConfigError, match="the calibration split"):
        measure_difficulty(held_out, held_out.ids[:2], CurriculumSettings())


def test_a_choice_of_subjects_is_spread_over_data_sets_and_time():
    source = ForecastSource("embedded", "train", stride=48)
    chosen = spread_subjects(source, 7)
    counts = Counter(source.dataset(name) for name in chosen)
    assert len(set(chosen)) == 7 and max(counts.values()) - min(counts.values()) <= 1
    assert spread_subjects(source, None) == list(source.ids) and chosen[0] == source.ids[0]
