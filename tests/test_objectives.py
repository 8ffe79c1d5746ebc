"""Objective variants: as prompts, as rewards, and as rescoring of saved decisions."""

import json
from pathlib import Path

import pytest
from factories import make_case, make_episode, make_loaded

from castgym.agents.base import Desk
from castgym.agents.fixed import ClassicalPolicy, ForecastPolicy
from castgym.data.errors import ConfigError
from castgym.envs.fwbench import FWBenchEnv
from castgym.envs.scoring import COMBINED, OBJECTIVES, find_objective
from castgym.evaluation.report import build_report
from castgym.evaluation.runner import EvaluationSettings, evaluate
from castgym.evaluation.runs import Run
from castgym.tools.calls import ToolCall
from castgym.tools.forecasters.pool import shared_pool


def test_the_official_objective_is_the_papers_equation() -> None:
    assert COMBINED.score(2.0, 56_863, 113_726) == 0.5 * (2.0 + 0.5)
    assert find_objective("loss_only").score(2.0, 113_726, 113_726) == 2.0
    assert find_objective("0.25/0.75").score(2.0, 113_726, 113_726) == 1.25
    assert find_objective("0.75/0.25").score(2.0, 113_726, 113_726) == 1.75
    with pytest.raises(ConfigError, match="loss_only"):
        find_objective("free")


def test_each_objective_is_stated_and_nothing_else_changes() -> None:
    texts = {name: make_episode(make_case(), objective=name).observe().text.splitlines() for name in OBJECTIVES}
    assert len({tuple(text) for text in texts.values()}) == len(OBJECTIVES)
    for text in texts.values():
        assert [line for line in text if not line.startswith("Objective:")] == [
            line for line in texts["combined"] if not line.startswith("Objective:")
        ]
    assert "113726" in next(line for line in texts["combined"] if line.startswith("Objective:"))


def test_the_reward_measures_what_the_prompt_asks_for() -> None:
    scores = {}
    for name in OBJECTIVES:
        env = FWBenchEnv(make_loaded(), objective=name)
        env.reset(options={"case_id": "TEST00-2026-07-17-day_ahead"})
        buy = {"series_id": "TEST00", "model": "seasonal_empirical", "horizon": 50, "context_steps": 336}
        *_, info = env.step(ToolCall("forecast_and_plan", buy))
        _, reward, *_, info = env.step(json.dumps(info["result"]["capacity_plan"]["submission"]))
        R, cost = info["score"]["R"], info["score"]["credits"] / 113_726
        objective = OBJECTIVES[name]
        assert reward == pytest.approx(-(objective.loss_weight * R + objective.cost_weight * cost))
        scores[name] = reward
    assert len(set(scores.values())) == len(OBJECTIVES)


def test_saved_decisions_are_rescored_with_other_weights(tmp_path: Path) -> None:
    loaded = make_loaded()
    desk = Desk(loaded.case_set.tariff, loaded.case_set.models, shared_pool())
    policies = [ClassicalPolicy("weekly_repeat"), ForecastPolicy("seasonal_empirical")]
    for policy in policies:
        evaluate(
            policy, loaded, loaded.case_set, {}, EvaluationSettings(), desk, tmp_path / policy.name, lambda *_: None
        )
    runs = [Run(tmp_path / policy.name) for policy in policies]
    found = {
        name: {
            result.label: result.aggregate
            for result in build_report(runs, None, tmp_path / name.replace("/", "-"), objective=objective).results
        }
        for name, objective in OBJECTIVES.items()
    }
    for name, objective in OBJECTIVES.items():
        for label, aggregate in found[name].items():
            assert pytest.approx(objective.score(aggregate.R, aggregate.credits, 113_726)) == aggregate.S
            assert aggregate.R == found["combined"][label].R
        assert objective.formula in (tmp_path / name.replace("/", "-") / "report.md").read_text()
