"""`FWBench-v0` as Gymnasium users meet it."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from factories import ScriptedForecaster, make_loaded, scripted_pool
from gymnasium.utils.env_checker import check_env

import castgym
from castgym.data.errors import ConfigError
from castgym.data.schema import TargetStore
from castgym.envs.fwbench import FWBenchEnv
from castgym.envs.registration import register_environments
from castgym.tools.calls import ToolCall


def make(**options: Any) -> FWBenchEnv:
    return FWBenchEnv(make_loaded(), **options)


def finish(env: FWBenchEnv, info: dict[str, Any]) -> tuple[Any, ...]:
    """Take the hourly plan and submit it."""
    series = info["task"]["series_id"]
    *_, info = env.step(ToolCall("hourly_history_plan", {"series_id": series}))
    return env.step(json.dumps(info["result"]["capacity_plan"]["submission"]))


@pytest.mark.parametrize("mode", ["memory", "chat"])
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasiums_own_checker_passes_unmodified(mode: str, render_mode: str | None) -> None:
    env = gym.make("FWBench-v0", cases=make_loaded(), prompt_mode=mode, render_mode=render_mode)
    check_env(env.unwrapped, skip_render_check=False)


def test_registering_again_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    register_environments()
    assert castgym.__version__
    assert not recwarn.list


def test_the_module_prefix_registers_the_environment() -> None:
    env = gym.make("castgym:FWBench-v0", cases=make_loaded())
    assert isinstance(env.unwrapped, FWBenchEnv)


def test_the_reward_is_minus_the_score_at_the_end_and_zero_before() -> None:
    env = make()
    _, info = env.reset(seed=3)
    series = info["task"]["series_id"]
    _, reward, terminated, truncated, info = env.step(ToolCall("hourly_history_plan", {"series_id": series}))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "score" not in info
    answer = json.dumps(info["result"]["capacity_plan"]["submission"])
    _, reward, terminated, truncated, info = env.step(answer)
    assert (terminated, truncated, info["outcome"]) == (True, False, "completed")
    assert reward == -info["score"]["S"]
    assert info["score"]["S"] == pytest.approx(0.5 * (info["score"]["loss"] - info["score"]["floor"]) / 0.05)


def test_bought_forecasts_enter_the_score() -> None:
    env = make()
    _, info = env.reset(seed=3, options={"case_id": "TEST00-2026-07-17-day_ahead"})
    buy = {"series_id": "TEST00", "model": "seasonal_empirical", "horizon": 50, "context_steps": 336}
    *_, info = env.step(ToolCall("forecast_and_plan", buy))
    assert info["credits"] == 1027
    *_, info = env.step(json.dumps(info["result"]["capacity_plan"]["submission"]))
    score = info["score"]
    assert score["S"] == pytest.approx(0.5 * (score["R"] + 1027 / 113_726))


def test_invalid_ends_cost_more_than_any_plan() -> None:
    env = make()
    _, info = env.reset(seed=0)
    _, bad, terminated, _, bad_info = env.step("no plan at all")
    assert terminated
    assert bad_info["score"]["fault"] == "no_complete_json"
    _, info = env.reset(seed=0)
    good = finish(env, info)[1]
    assert bad < -10 < good


def test_the_call_limit_truncates_with_the_invalid_penalty() -> None:
    env = make(max_calls=1)
    env.reset(seed=0)
    env.step(ToolCall("catalog", {}))
    _, reward, terminated, truncated, info = env.step(ToolCall("catalog", {}))
    assert (terminated, truncated, info["outcome"]) == (False, True, "budget_exhausted")
    assert info["score"]["fault"] == "call_limit_exceeded"
    assert reward < -10


def test_equal_seeds_and_options_give_equal_first_prompts() -> None:
    first, second = make(), make()
    assert first.reset(seed=11)[0] == second.reset(seed=11)[0]
    chosen = {"case_id": "TEST01-2026-07-17-week_ahead"}
    group = {make().reset(seed=5, options=chosen)[0] for _ in range(4)}
    assert len(group) == 1


def test_the_global_random_state_is_untouched() -> None:
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    env = make()
    _, info = env.reset(seed=1)
    finish(env, info)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_nothing_that_an_agent_sees_changes_with_the_truth() -> None:
    """Other targets, same everything: prompts, results and infos before the end are byte for byte the same."""
    loaded = make_loaded()
    other = TargetStore([type(target)(target.case_id, target.actual * 3 + 1) for target in loaded.targets.values()])
    transcripts = []
    for targets in (loaded.targets, other):
        env = FWBenchEnv(type(loaded)(loaded.case_set, targets, "memory"), render_mode="ansi")
        prompt, info = env.reset(seed=2)
        seen = [prompt, json.dumps(info), env.render()]
        series = info["task"]["series_id"]
        for call in (
            ToolCall("catalog", {}),
            ToolCall("history", {"series_id": series, "limit": 336}),
            ToolCall("hourly_history_plan", {"series_id": series}),
            ToolCall("nonsense", {}),
        ):
            prompt, reward, *_, info = env.step(call)
            seen += [prompt, str(reward), json.dumps(info), env.render()]
        transcripts.append(seen)
    assert transcripts[0] == transcripts[1]


def test_saved_state_continues_here_and_keeps_its_case() -> None:
    env = make()
    _, info = env.reset(seed=4)
    env.step(ToolCall("hourly_history_plan", {"series_id": info["task"]["series_id"]}))
    state = json.loads(json.dumps(env.state()))
    again = make()
    prompt, info = again.reset(options={"state": state})
    assert prompt == env.episode.observe().text
    assert again.step('{"decisions": []}')[1] == env.step('{"decisions": []}')[1]


def buy_one(env: FWBenchEnv) -> None:
    buy = {"series_id": "TEST00", "model": "seasonal_empirical", "horizon": 50, "context_steps": 336}
    env.step(ToolCall("forecast_and_plan", buy))


def test_every_episode_keeps_a_journal_of_its_own(tmp_path: Path) -> None:
    """Environments side by side share nothing: equal first prompts, separate files."""
    options = {"case_id": "TEST00-2026-07-17-day_ahead"}
    envs = [make(ledger_folder=tmp_path) for _ in range(3)]
    prompts = set()
    for env in envs:
        prompts.add(env.reset(seed=1, options=options)[0])
        buy_one(env)
    assert len(prompts) == 1
    assert [env.episode.spent for env in envs] == [1027] * 3
    journals = list(tmp_path.iterdir())
    assert len(journals) == 3
    assert all(len(journal.read_text().splitlines()) == 2 for journal in journals)


def test_a_charge_that_a_crash_left_behind_the_saved_state_is_kept(tmp_path: Path) -> None:
    env = make(ledger_folder=tmp_path)
    env.reset(options={"case_id": "TEST00-2026-07-17-day_ahead"})
    buy_one(env)
    state = json.loads(json.dumps(env.state()))
    buy_one(env)  # charged in the journal, and then the process dies before another state is saved
    again = make(ledger_folder=tmp_path)
    again.reset(options={"state": state})
    assert again.episode.spent == 2 * 1027
    assert len(again.episode.memory.calls) == 1
    elsewhere = make(ledger_folder=tmp_path / "other")
    elsewhere.reset(options={"state": state})
    assert elsewhere.episode.spent == 1027


@pytest.mark.parametrize("options", [{"case_id": "nope"}, {"colour": "red"}])
def test_bad_reset_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make().reset(options=options)


@pytest.mark.parametrize(
    "options",
    [
        {"split": "future"},
        {"prompt_mode": "x"},
        {"answer_form": "x"},
        {"pool": "x"},
        {"render_mode": "hologram"},
        {"split": "train"},
    ],
)
def test_bad_settings_are_refused_when_the_environment_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make(**options)


def test_stepping_before_reset_and_after_the_end_is_refused() -> None:
    env = make()
    with pytest.raises(ConfigError, match="reset"):
        env.step("x")
    env.reset(seed=0)
    env.step("x")
    with pytest.raises(ConfigError, match="ended"):
        env.step("x")


def test_actions_that_are_no_responses_are_a_type_error() -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="found ndarray"):
        env.step(np.zeros(3))  # type: ignore[arg-type]


class TestVector:
    def test_make_vec_restarts_in_the_same_step(self) -> None:
        envs = gym.make_vec("FWBench-v0", num_envs=3, cases=make_loaded())
        observations, infos = envs.reset(seed=[1, 2, 3])
        assert isinstance(observations, tuple)
        assert len(set(infos["case_id"])) > 1
        observations, rewards, terminated, _, infos = envs.step(["nothing"] * 3)
        assert terminated.all()
        assert (rewards < -10).all()
        assert all(text.startswith("[tools]") for text in observations)
        assert infos["final_info"]["outcome"].tolist() == ["invalid_submission"] * 3
        envs.close()

    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_sync_and_async_give_the_texts_of_a_single_environment(self, mode: str) -> None:
        loaded = make_loaded()
        envs = gym.make_vec("FWBench-v0", num_envs=2, vectorization_mode=mode, cases=loaded)
        observations, _ = envs.reset(seed=[5, 6])
        single = [FWBenchEnv(loaded).reset(seed=seed)[0] for seed in (5, 6)]
        assert list(observations) == single
        observations, *_ = envs.step(['{"name": "catalog", "arguments": {}}'] * 2)
        assert all("Calls used: 1 of 12" in text for text in observations)
        envs.close()


class TestRender:
    def test_text_shows_plans_and_after_the_end_the_score(self) -> None:
        env = make(render_mode="ansi")
        _, info = env.reset(seed=0)
        series = info["task"]["series_id"]
        env.step(ToolCall("hourly_history_plan", {"series_id": series}))
        text = env.render()
        assert isinstance(text, str)
        assert "p1 hourly_history_plan" in text
        assert "loss 0." not in text.replace("expected loss", "expected")
        env.step("nothing")
        assert "invalid_submission" in str(env.render())

    def test_the_plot_changes_when_the_truth_may_be_shown(self) -> None:
        env = make(render_mode="rgb_array")
        _, info = env.reset(seed=0)
        before = env.render()
        finish(env, info)
        after = env.render()
        assert isinstance(before, np.ndarray)
        assert before.dtype == np.uint8
        assert before.ndim == 3
        assert not np.array_equal(before, after)


def test_forecasters_can_be_given() -> None:
    forecaster = ScriptedForecaster()
    loaded = make_loaded()
    env = FWBenchEnv(loaded, forecasters=scripted_pool(forecaster))
    env.reset(seed=0)
    assert "scripted" not in [model["name"] for model in env.step(ToolCall("catalog", {}))[4]["result"]["models"]]
