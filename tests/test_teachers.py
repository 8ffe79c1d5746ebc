"""Scripted teachers play well, say what is true, and know nothing but their prompts."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import make_case, make_episode, make_loaded

from castgym.agents.base import Desk
from castgym.agents.registry import make_policies
from castgym.agents.teachers import DecisionTeacher, ForecastTeacher, official_teacher
from castgym.agents.teachers.forecast import backtest_errors
from castgym.data.errors import ConfigError
from castgym.envs.casesets import load_cases
from castgym.envs.core import AgentEpisode
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.memory import Memory
from castgym.envs.prompts import Prompt
from castgym.envs.sources import DecisionSource, EpisodeSource
from castgym.evaluation.runner import EvaluationSettings, evaluate
from castgym.evaluation.runs import Run
from castgym.tools.calls import parse_response
from castgym.tools.forecasters.pool import shared_pool
from castgym.training.collecting import chosen_subjects
from castgym.training.references import reference_errors


@pytest.fixture(scope="module")
def decisions() -> DecisionSource:
    return DecisionSource(load_cases(), "train", prompt_style="compact", answer_form="plan")


@pytest.fixture(scope="module")
def forecasts() -> ForecastSource:
    return ForecastSource(
        "embedded", "train", models=("seasonal_naive", "arima"), backtests=2, answer_form="forecast", stride=24
    )


Teacher = DecisionTeacher | ForecastTeacher


def play(teacher: Teacher, episode: AgentEpisode, seed: int | None = None) -> list[tuple[Prompt, str]]:
    """Every prompt and its response."""
    turns = []
    while not episode.done:
        prompt = episode.observe()
        drawn = None if seed is None else seed + len(turns)
        text = asyncio.run(teacher.respond(prompt, seed=drawn)).text
        episode.act(text)
        turns.append((prompt, text))
    return turns


def some_ids(source: EpisodeSource, count: int) -> list[str]:
    return chosen_subjects(source, count)


class TestDecisions:
    @pytest.mark.parametrize("exploration", [0.0, 0.3, 1.0])
    def test_every_episode_ends_in_a_valid_plan(self, decisions: DecisionSource, exploration: float) -> None:
        teacher = DecisionTeacher(exploration=exploration)
        for number, subject in enumerate(some_ids(decisions, 20)):
            episode = decisions.episode(subject)
            turns = play(teacher, episode, seed=1000 * number)
            assert decisions.score(episode).valid, (subject, turns[-1][1])
            assert 3 <= len(turns) <= 5
            assert episode.spent == 0

    def test_the_rule_beats_the_free_reference_on_training_cases(self, decisions: DecisionSource) -> None:
        subjects = [name for name in some_ids(decisions, 240) if decisions.dataset(name) == "electricity"]
        references = reference_errors(decisions, subjects)
        gains = []
        for subject in subjects:
            episode = decisions.episode(subject)
            play(DecisionTeacher(exploration=0.0), episode)
            gains.append(references[subject] - decisions.score(episode).error)
        assert np.mean(gains) > 0.02

    def test_it_knows_nothing_but_what_the_compact_prompt_says(self, decisions: DecisionSource) -> None:
        """Histories that differ by less than the prompt shows lead to the same words."""
        rng = np.random.default_rng(0)
        for subject in some_ids(decisions, 6):
            turns = play(DecisionTeacher(exploration=0.5), decisions.episode(subject), seed=7)
            for number, (prompt, said) in enumerate(turns):
                blurred = Memory.from_json(prompt.memory.to_json())
                for position, record in enumerate(blurred.calls):
                    if record.tool == "history":
                        values = np.array(record.content["values"]) * (1 + 1e-9 * rng.normal(size=336))
                        blurred.calls[position] = replace(record, content={**record.content, "values": values.tolist()})
                task = {**prompt.task, "case_id": "another", "as_of": prompt.task["as_of"]}
                again = DecisionTeacher(exploration=0.5).respond(
                    replace(prompt, memory=blurred, task=task), seed=7 + number
                )
                assert asyncio.run(again).text == said

    def test_the_numbers_in_its_reasons_stand_in_its_prompt(self, decisions: DecisionSource) -> None:
        seen = set()
        for number, subject in enumerate(some_ids(decisions, 30)):
            for prompt, said in play(DecisionTeacher(exploration=0.4), decisions.episode(subject), seed=50 * number):
                thought = parse_response(said).thinking
                seen.add(re.sub(r"[-+]?\d+", "#", thought))
                assert 0 < len(thought.split()) < 25
                shown = str(prompt.messages)
                if thought.startswith(("Try", "A trial")):  # what it is about to do stands in its answer
                    block, steps = re.findall(r"b\d\d|[-+]?\d+", thought)[:2]
                    assert json.loads(parse_response(said).text).get("adjust", {}).get(block, 0) == int(steps)
                    continue
                if "of S:" in thought:
                    price = int(re.findall(r": (\d+) credits", shown)[-1])
                    assert f"{0.5 * price / prompt.task['budget']:.2f} of S" in thought
                    continue
                for word in re.findall(r"(?<![\w.])[-+]?\d+(?![\w.])", thought):
                    assert word in shown or word == "0", thought
        assert len(seen) > 10  # it does not say the same all the time

    def test_a_reason_about_a_block_is_that_blocks_row(self, decisions: DecisionSource) -> None:
        found = 0
        for subject in some_ids(decisions, 40):
            prompt, said = play(DecisionTeacher(exploration=0.0), decisions.episode(subject))[-1]
            match = re.search(r"(b\d\d) last ([-+]?\d+)", said)
            if match:
                found += 1
                rows = [line.split() for line in str(prompt.messages[1]["content"]).splitlines() if line]
                row = next(row for row in rows if row[0] == "last")
                assert row[1 + int(match[1][1:])] == match[2]
        assert found > 0

    def test_the_same_prompt_and_seed_give_the_same_words(self, decisions: DecisionSource) -> None:
        teacher = DecisionTeacher(exploration=0.5)
        first, second = some_ids(decisions, 2)
        alone = play(teacher, decisions.episode(second), seed=3)
        play(teacher, decisions.episode(first), seed=3)
        assert [said for _, said in play(teacher, decisions.episode(second), seed=3)] == [said for _, said in alone]

    def test_other_seeds_give_other_words(self, decisions: DecisionSource) -> None:
        subject = some_ids(decisions, 1)[0]
        assert len({str(play(DecisionTeacher(), decisions.episode(subject), seed=seed)[-1]) for seed in range(12)}) > 2

    def test_a_week_ahead_it_goes_one_step_further_up(self) -> None:
        history = np.full(336, 100.0)
        shifts = {}
        for family in ("day_ahead", "week_ahead"):
            episode = make_episode(
                make_case(family=family, history=history, scale=100.0), prompt_style="compact", answer_form="plan"
            )
            answer = json.loads(parse_response(play(DecisionTeacher(exploration=0.0), episode)[-1][1]).text)
            shifts[family] = answer.get("adjust", {})
        assert shifts["day_ahead"] == {}
        assert set(shifts["week_ahead"].values()) == {1}

    def test_hourly_counts_keep_their_plan_and_sundays_get_their_own(self) -> None:
        sources = {}
        for day in (0, 2):  # the target is a Saturday, or a Monday less one
            case = make_case(unit="departures/hour", domain="cycle_hire")
            case = replace(
                case,
                as_of=case.as_of.replace(day=17 + day // 2),
                target_start=case.target_start.replace(day=18 + day // 2),
            )
            episode = make_episode(case, prompt_style="compact", answer_form="plan")
            answer = json.loads(parse_response(play(DecisionTeacher(exploration=0.0), episode)[-1][1]).text)
            sources[case.target_start.weekday()] = (episode.memory.plan(answer["plan"]).source, answer.get("adjust"))
        assert sources == {5: ("hourly_history_plan", None), 6: ("classical_plan:weekday_empirical", None)}

    def test_it_plays_official_runs_by_name(self, tmp_path: Path) -> None:
        loaded = make_loaded()
        desk = Desk(loaded.case_set.tariff, loaded.case_set.models, shared_pool())
        [policy] = make_policies(["castgym.agents.teachers:official_teacher"], loaded, desk)
        evaluate(policy, loaded, loaded.case_set, {}, EvaluationSettings(), desk, tmp_path, lambda done, total: None)
        rows = Run(tmp_path).rows
        assert len(rows) == len(loaded.case_set)
        assert all(row.valid for row in rows)
        assert official_teacher().options == {
            "agent": "scripted_teacher",
            "exploration": 0.0,
            "answer_form": "decisions",
        }

    def test_few_calls_or_an_uneven_grid_do_not_stop_it(self) -> None:
        terms = make_case().terms.model_copy(update={"grid": (0.5, 0.8, 1.0, 1.05, 1.5)})
        for conditions, case in (({"max_calls": 1}, make_case()), ({}, make_case(terms=terms))):
            episode = make_episode(case, prompt_style="compact", answer_form="plan", **conditions)
            play(DecisionTeacher(exploration=1.0), episode, seed=0)
            assert episode.end.outcome == "completed"

    @pytest.mark.parametrize("settings", [{"exploration": 1.5}, {"answer_form": "values"}])
    def test_wrong_settings_are_refused(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(settings))):
            DecisionTeacher(**settings)


class TestForecasts:
    @pytest.mark.parametrize("exploration", [0.0, 1.0])
    def test_every_episode_passes_the_three_stages(self, forecasts: ForecastSource, exploration: float) -> None:
        for number, subject in enumerate(some_ids(forecasts, 6)):
            episode = forecasts.episode(subject)
            turns = play(ForecastTeacher(exploration=exploration), episode, seed=100 * number)
            assert [prompt.task["stage"] for prompt, _ in turns] == ["preparation", "forecasting", "refinement"]
            assert forecasts.score(episode).valid
            assert all(record.error in (None, "insufficient_context") for record in episode.memory.calls)
            assert all(0 < len(parse_response(said).thinking.split()) < 25 for _, said in turns)

    def test_the_answer_blends_what_did_well_lately(self, forecasts: ForecastSource) -> None:
        compared = 0
        for subject in self._with_backtests(forecasts):
            episode = forecasts.episode(subject)
            prompt, _ = play(ForecastTeacher(exploration=0.0), episode)[-1]
            errors = backtest_errors(prompt)
            stored = episode.stored_forecasts()
            assert min(errors, key=lambda name: errors[name]) in stored
            best = min(stored, key=lambda name: errors[name])
            weights = [2 if name == best and len(stored) > 1 else 1 for name in stored]
            expected = np.average(list(stored.values()), axis=0, weights=weights)
            assert episode.end.submission is not None
            np.testing.assert_allclose(episode.end.submission["values"], expected)
            compared += len(stored) > 1
        assert compared > 0

    def _with_backtests(self, source: ForecastSource) -> Iterator[str]:
        yield from [subject for subject in source.ids if source.loaded.past(source.loaded.window(subject), 2)][-4:]

    def test_values_can_be_written_out(self) -> None:
        source = ForecastSource("embedded", "train", models=("seasonal_naive",), stride=240)
        episode = source.episode(source.ids[-1])
        prompt, said = play(ForecastTeacher(), episode)[-1]
        assert episode.end.outcome == "completed"
        assert said.count("\n") >= prompt.task["horizon"]

    def test_without_forecasters_it_repeats_the_last_day(self) -> None:
        source = ForecastSource("embedded", "train", models=(), stride=240, datasets=["SIM_temperature"])
        episode = source.episode(source.ids[-1])
        play(ForecastTeacher(exploration=0.0), episode)
        assert episode.end.submission is not None
        np.testing.assert_allclose(episode.end.submission["values"][:24], episode.window.history[-24:, 0], atol=0.01)

    def test_it_answers_before_its_steps_run_out(self) -> None:
        source = ForecastSource("embedded", "train", models=("seasonal_naive",), stride=240, max_steps=1)
        episode = source.episode(source.ids[-1])
        play(ForecastTeacher(), episode)
        assert episode.end.outcome == "completed"

    def test_the_same_prompt_and_seed_give_the_same_words(self, forecasts: ForecastSource) -> None:
        subject = some_ids(forecasts, 1)[0]
        teacher = ForecastTeacher(exploration=0.5)
        first, second = ([said for _, said in play(teacher, forecasts.episode(subject), seed=5)] for _ in range(2))
        assert first == second

    def test_wrong_settings_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="exploration"):
            ForecastTeacher(exploration=-0.1)
