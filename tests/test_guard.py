import math
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

from transformers import TrainerControl, TrainerState

from castgym.data.errors import ConfigError
from castgym.training.guard import CollapseGuard, CollapseMonitor, GuardSettings
from castgym.training.run_config import load_run_config

HEALTHY = {
    "reward": 0.4,
    "groups/std": 0.2,
    "groups/zero_variance_share": 0.1,
    "entropy": 0.7,
    "rollout/invalid_share": 0.05,
    "rollout/repeated_share": 0.2,
    "kl": 0.01,
    "canary/logprob_gap_mean": 1e-5,
}
SETTINGS = GuardSettings(window=3, patience=2)


def verdicts(monitor, *changes):
    return [monitor.update({**HEALTHY, **change}) for change in changes]


def test_a_healthy_run_is_left_alone():
    assert not any(verdict.breaches for verdict in verdicts(CollapseMonitor(SETTINGS), *[{}] * 50))


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("groups/std", 0.0),
        ("groups/zero_variance_share", 1.0),
        ("entropy", 0.001),
        ("rollout/invalid_share", 0.9),
        ("rollout/repeated_share", 1.0),
        ("kl", 10.0),
        ("canary/logprob_gap_mean", 0.5),
    ],
)
def test_each_kind_of_collapse_warns_and_then_stops(metric, value):
    # The window is full at the third log: the first verdict with a breach; two in a row stop.
    found = verdicts(CollapseMonitor(SETTINGS), *[{metric: value}] * 4)
    assert [bool(verdict.breaches) for verdict in found] == [False, False, True, True]
    assert [verdict.stop for verdict in found] == [False, False, False, True]
    assert metric in found[-1].breaches[0]


def test_a_single_bad_log_does_not_count():
    found = verdicts(CollapseMonitor(SETTINGS), {}, {}, {"entropy": 0.0}, {}, {}, {})
    assert not any(verdict.breaches for verdict in found)


def test_a_run_that_recovers_goes_on():
    bad, found = {"kl": 10.0}, []
    monitor = CollapseMonitor(SETTINGS)
    found = verdicts(monitor, bad, bad, bad, {"kl": -20.0}, {"kl": 0.0}, bad, bad, bad)
    assert [bool(verdict.breaches) for verdict in found] == [False, False, True, False, False, False, True, True]
    assert [verdict.stop for verdict in found][-2:] == [False, True]


def test_missing_and_unreadable_metrics_and_limits_switched_off_are_passed_over():
    monitor = CollapseMonitor(GuardSettings(window=1, patience=1, most_kl=None))
    assert not monitor.update({"reward": 1.0, "entropy": math.nan, "groups/std": None, "kl": 99.0}).breaches


def test_the_guard_stops_the_trainer_and_says_why():
    guard, control, state = CollapseGuard(SETTINGS), TrainerControl(), TrainerState()
    guard.on_train_begin(None, state, control)
    for _ in range(4):
        guard.on_log(None, state, control, {**HEALTHY, "entropy": 0.0})
    assert control.should_training_stop and "no longer explores" in guard.reason


def test_a_resumed_run_stops_where_the_whole_one_would():
    history = [{**HEALTHY, "entropy": 0.0}] * 3 + [{"eval_reward": 1.0}]
    guard, control = CollapseGuard(SETTINGS), TrainerControl()
    guard.on_train_begin(None, SimpleNamespace(log_history=history), control)
    assert not control.should_training_stop
    guard.on_log(None, TrainerState(), control, {**HEALTHY, "entropy": 0.0})
    assert control.should_training_stop


def test_limits_come_from_yaml(tmp_path):
    path = tmp_path / "guard.yaml"
    path.write_text("most_kl: null\nwindow: 7\n")
    assert load_run_config(path, GuardSettings) == GuardSettings(most_kl=None, window=7)
    path.write_text("most_kl: 1e-2\n")
    with pytest.raises(ConfigError, match="most_kl"):
        load_run_config(path, GuardSettings)
