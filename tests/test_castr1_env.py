"""`CastR1-v0` and its source as users meet them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from castr1_helpers import DIAGNOSE, MODELS, PRICE, TEMPERATURE, WIND, answer_of, make_pool, predict, with_future
from gymnasium.utils.env_checker import check_env

from castgym.data.errors import ConfigError, DataError, ForecasterUnavailableError, InfrastructureError
from castgym.data.windows_store import save_window_sets
from castgym.envs.casesets import EMBEDDED
from castgym.envs.castr1 import CastR1Env
from castgym.envs.checks import check_agent_env, default_script
from castgym.envs.forecast_reward import PUBLIC_PENALTIES, TABLE4, PenaltySettings
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.windowsets import load_windows


def make(**options: Any) -> CastR1Env:
    return CastR1Env(**{"windows": PRICE, "models": MODELS, "forecasters": make_pool(), **options})


def play(env: CastR1Env, *responses: str, seed: int = 0) -> tuple[Any, ...]:
    env.reset(seed=seed)
    for response in responses:
        step = env.step(response)
    return step


def keep_forecast(env: CastR1Env) -> tuple[Any, ...]:
    play(env, DIAGNOSE, predict("seasonal_naive"))
    return env.step(answer_of(env.episode))


@pytest.mark.parametrize("mode", ["memory", "chat"])
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasiums_own_checker_passes_unmodified(mode: str, render_mode: str | None) -> None:
    env = gym.make("CastR1-v0", models=["seasonal_naive"], prompt_mode=mode, render_mode=render_mode)
    check_env(env.unwrapped, skip_render_check=False)


@pytest.mark.parametrize("mode", ["memory", "chat"])
@pytest.mark.parametrize(("style", "form"), [("full", "values"), ("compact", "forecast")])
def test_castr1_keeps_every_promise(mode: str, style: str, form: str) -> None:
    """The split has one window, the last day, and everything in it becomes another."""
    only = replace(PRICE, ratio=(100, 19, 1))
    other = with_future(only, len(only) - 24, lambda values: values * 3 + 1)
    pool = make_pool()

    def make_env(windows: Any = only) -> gym.Env[Any, Any]:
        conditions = {"prompt_mode": mode, "prompt_style": style, "answer_form": form, "backtests": 1}
        return gym.make("CastR1-v0", windows=windows, models=MODELS, forecasters=pool, **conditions)

    check_agent_env(make_env(), make=make_env, perturbed=lambda: make_env(other))


def test_the_default_script_of_the_checker_uses_every_tool_well() -> None:
    env = make(backtests=1)
    _, info = env.reset(seed=0)
    used: dict[str, bool] = {}
    for action in default_script(info)[:2]:
        env.step(action)
    for record in env.episode.memory.calls:
        used[record.tool] = used.get(record.tool, False) or record.error is None
    assert used == dict.fromkeys(env.source.config.tools, True)


def test_making_it_without_arguments_plays_the_embedded_windows() -> None:
    env = gym.make("CastR1-v0")
    prompt, info = env.reset(seed=0)
    assert "Stage: preparation" in prompt
    source = env.unwrapped.source  # type: ignore[attr-defined]
    assert {source.dataset(name) for name in source.ids} == {"SIM_temperature", "SIM_price", "SIM_wind"}
    assert "seasonal_naive" in info["task"]["models"]
    assert info["prompt_size"]["total"] > 1000


def test_the_reward_is_zero_until_the_end_and_then_the_papers() -> None:
    env = make()
    _, reward, terminated, truncated, info = play(env, DIAGNOSE)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "score" not in info
    assert [error for error in info["errors"]] == [None, None]  # noqa: C416
    _, reward, terminated, truncated, info = keep_forecast(env)
    assert (terminated, truncated, info["outcome"]) == (True, False, "completed")
    parts = info["score"]["parts"]
    assert reward == info["score"]["reward"] == parts["reward"]["total"]
    assert 0 < reward < 1.2
    values = np.array(env.episode.end.submission["values"])  # type: ignore[index]
    truth = env.source.loaded.target(info["window_id"]).actual
    assert info["score"]["error"] == parts["mse"] == pytest.approx(np.mean((values - truth) ** 2))
    assert parts["mae"] == pytest.approx(np.mean(np.abs(values - truth)))


@pytest.mark.parametrize(
    ("response", "outcome", "reward"),
    [
        ("<answer>1", "invalid_submission", -1.0),
        ("<answer></answer>", "invalid_submission", 0.0),
        ({"content": "<answer>", "finish_reason": "length"}, "truncated", -1.0),
    ],
)
def test_an_answer_that_cannot_be_judged_has_no_error(response: Any, outcome: str, reward: float) -> None:
    env = make()
    env.reset(seed=0)
    _, found, terminated, truncated, info = env.step(response)
    assert (info["outcome"], found) == (outcome, reward)
    assert terminated != truncated
    assert info["score"]["error"] == float("inf")
    assert not info["score"]["valid"]
    assert info["score"]["parts"]["mse"] is None


def test_a_partial_answer_earns_its_share_and_is_no_valid_forecast() -> None:
    env = make()
    play(env, DIAGNOSE, predict("seasonal_naive"))
    lines = env.episode.memory.predictions[0].content["forecast"]
    _, reward, _, _, info = env.step("<answer>" + "\n".join(lines[:12]) + "</answer>")
    assert info["outcome"] == "invalid_submission"
    assert info["score"]["parts"]["reward"]["p"] == 0.5
    assert 0 < reward < 0.6


def test_the_limit_of_responses_truncates_with_minus_one() -> None:
    _, reward, terminated, truncated, info = play(make(max_steps=2), "Hm.", "Hm.")
    assert (reward, terminated, truncated, info["outcome"]) == (-1.0, False, True, "budget_exhausted")
    assert info["score"]["parts"]["fault"] == "step_limit_exceeded"


def test_a_missing_forecaster_is_known_when_the_environment_is_made() -> None:
    with pytest.raises(ForecasterUnavailableError):
        make(models=("missing",))
    with pytest.raises(ForecasterUnavailableError):  # a data set of one's own asks for the paper's pool
        CastR1Env(PRICE, models=None)
    assert issubclass(ForecasterUnavailableError, InfrastructureError)


class TestReset:
    def test_equal_seeds_and_options_give_equal_first_prompts(self) -> None:
        assert make().reset(seed=3)[0] == make().reset(seed=3)[0]
        chosen = {"window_id": make().source.ids[2]}
        prompts = {make().reset(seed=5, options=chosen)[0] for _ in range(3)}
        assert len(prompts) == 1
        assert make().reset(options=chosen)[1]["window_id"] == chosen["window_id"]

    def test_any_window_of_the_split_can_be_chosen(self) -> None:
        env = make(windows=TEMPERATURE)
        origin = TEMPERATURE.origins("test", stride=1)[7]
        chosen = f"SIM_temperature-test-{origin:%Y-%m-%dT%H:%M}"
        assert env.reset(options={"window_id": chosen})[1]["window_id"] == chosen

    @pytest.mark.parametrize(
        "options",
        [
            {"window_id": "nope"},
            {"window_id": "SIM_price-train-2021-03-10T00:00"},
            {"window_id": "SIM_price-test-2021-03-10T00:00"},
            {"case_id": "x"},
        ],
    )
    def test_other_options_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            make().reset(options=options)

    def test_a_saved_state_continues_and_pays_no_bonus_twice(self) -> None:
        penalties = PenaltySettings(useful_call=0.05)
        env = make(penalties=penalties)
        play(env, DIAGNOSE)
        state = json.loads(json.dumps(env.state()))
        again = make(penalties=penalties)
        prompt, _ = again.reset(options={"state": state})
        assert prompt == env.episode.observe().text
        assert again.step("Hm.")[1] == 0.0
        assert again.step(predict("last_value"))[1] == 0.05

    @pytest.mark.parametrize("options", [{"split": "future"}, {"stride": 7}, {"datasets": ["ETTh9"]}, {"models": "x"}])
    def test_bad_settings_are_refused_when_the_environment_is_made(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            make(**options)
        with pytest.raises(ConfigError):
            make(render_mode="hologram")


class TestReward:
    def test_bonus_and_penalty_of_the_public_code_add_up_to_the_score(self) -> None:
        env = make(penalties=PUBLIC_PENALTIES)
        env.reset(seed=0)
        rewards = [env.step(response)[1] for response in (DIAGNOSE, "Hm.", predict("last_value", "seasonal_naive"))]
        assert rewards == [0.05, 0.0, 0.05]
        _, last, _, _, info = env.step(answer_of(env.episode))
        assert sum(rewards) + last == pytest.approx(info["score"]["reward"])
        assert info["score"]["parts"]["bonus"] == pytest.approx(0.1)

    def test_an_unprepared_answer_and_copied_timestamps_are_penalised_where_asked(self) -> None:
        env = make(penalties=PUBLIC_PENALTIES)
        env.reset(seed=0)
        stamps = [f"{time:%Y-%m-%d %H:%M} 1" for time in env.episode.window.history_times]
        _, reward, *_ = env.step("<answer>" + "\n".join(stamps) + "</answer>")
        assert reward == -1.5

    def test_weights_and_strict_alignment_reach_the_reward(self) -> None:
        full = keep_forecast(make())[1]
        ablated = keep_forecast(make(weights=TABLE4["w/o align"]))
        parts = ablated[4]["score"]["parts"]["reward"]
        assert full == pytest.approx(ablated[1] + 0.1 * (parts["h_max"] + parts["h_min"]))
        flat = "<answer>{}</answer>"
        rewards = []
        for strict in (False, True):
            env = make(strict_alignment=strict, answer_form="forecast")
            play(env, DIAGNOSE, predict("last_value"))
            rewards.append(env.step(flat.format('{"forecast": "last_value"}'))[1])
        assert rewards[1] < rewards[0]


class TestSource:
    def test_ids_are_those_of_the_windows_and_name_their_data_set(self) -> None:
        source = ForecastSource([PRICE, WIND], "validation", forecasters=make_pool(), models=MODELS)
        expected = [window.window_id for item in (PRICE, WIND) for window in item.windows("validation")]
        assert list(source.ids) == expected
        assert source.dataset(expected[-1]) == "SIM_wind"
        assert (source.name, source.split) == ("SIM_price+SIM_wind", "validation")
        only = ForecastSource([PRICE, WIND], "test", datasets=["SIM_wind"], forecasters=make_pool(), models=MODELS)
        assert only.name == "SIM_wind"
        assert only.fingerprint != source.fingerprint

    def test_a_stride_chooses_more_windows(self) -> None:
        def count(stride: int | None) -> int:
            return len(ForecastSource(WIND, "test", stride=stride, forecasters=make_pool(), models=MODELS).ids)

        assert count(8) > 10 * count(None)

    def test_an_episode_holds_no_truth(self) -> None:
        """Whatever an episode refers to, the truth of its horizon is not among it."""
        source = ForecastSource(PRICE, "test", forecasters=make_pool(), models=MODELS, backtests=2)
        episode = source.episode(source.ids[3])
        truth = source.loaded.target(source.ids[3]).actual
        seen: set[int] = set()
        todo: list[Any] = [episode]
        while todo:
            item = todo.pop()
            if id(item) in seen or isinstance(item, str | bytes | int | float | type | type(sys)):
                continue
            seen.add(id(item))
            assert not hasattr(item, "targets")
            if isinstance(item, np.ndarray):
                assert item.base is None  # no view into a larger table
                assert not np.isin(truth, item).all()
            elif isinstance(item, dict):
                todo += list(item.values())
            elif isinstance(item, list | tuple | set | frozenset):
                todo += list(item)
            else:
                todo += list(getattr(item, "__dict__", {}).values())
                todo += [getattr(item, name) for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]

    def test_another_kind_of_episode_is_refused(self) -> None:
        from factories import make_episode

        source = ForecastSource(PRICE, "test", forecasters=make_pool(), models=MODELS)
        with pytest.raises(TypeError, match="window"):
            source.score(make_episode())

    def test_an_error_beyond_float64_is_infinite_and_stays_json(self) -> None:
        source = ForecastSource(PRICE, "test", forecasters=make_pool(), models=MODELS)
        episode = source.episode(source.ids[0])
        stamps = episode.observe().task["horizon_timestamps"]
        episode.act("<answer>" + "\n".join(f"{stamp} 1e308" for stamp in stamps) + "</answer>")
        score = source.score(episode)
        assert (score.valid, score.error, score.parts["mse"]) == (True, float("inf"), None)
        assert np.isfinite(score.reward)
        json.dumps(dict(score.parts), allow_nan=False)


class TestWindowSets:
    def test_embedded_and_folder_load(self, tmp_path: Path) -> None:
        save_window_sets(tmp_path / "sets", [PRICE, WIND])
        loaded = load_windows(tmp_path / "sets")
        assert loaded.name == "SIM_price+SIM_wind"
        env = CastR1Env(tmp_path / "sets", models=MODELS, forecasters=make_pool(), datasets=["SIM_wind"])
        assert env.reset(seed=0)[1]["task"]["dataset"] == "SIM_wind"
        assert load_windows(EMBEDDED).sets[0].fingerprint == TEMPERATURE.fingerprint
        with pytest.raises(DataError):
            load_windows(tmp_path)

    def test_the_past_of_the_first_windows_is_as_long_as_the_table_allows(self) -> None:
        loaded = load_windows()
        first = next(PRICE.windows("train"))
        assert loaded.past(first, 3) == ()
        past = loaded.past(next(PRICE.windows("test")), 3)
        assert len(past) == 3
        # Those before the first test window lie in the validation split, whose rows a network may have learnt from.
        assert {item.window.split for item in past} == {"validation"}


class TestVector:
    @pytest.mark.parametrize("mode", [None, "sync", "async"])
    def test_vector_environments_give_the_texts_of_single_ones(self, mode: str | None) -> None:
        envs = gym.make_vec("CastR1-v0", num_envs=2, vectorization_mode=mode, windows=PRICE, models=["seasonal_naive"])
        observations, _ = envs.reset(seed=[5, 6])
        single = [CastR1Env(PRICE, models=["seasonal_naive"]).reset(seed=seed)[0] for seed in (5, 6)]
        assert list(observations) == single
        observations, *_ = envs.step([DIAGNOSE] * 2)
        assert all("Stage: forecasting" in text for text in observations)
        envs.close()

    def test_make_vec_restarts_in_the_same_step(self) -> None:
        envs = gym.make_vec("CastR1-v0", num_envs=2, windows=PRICE, models=["seasonal_naive"])
        envs.reset(seed=[1, 2])
        observations, rewards, terminated, _, infos = envs.step(["<answer>"] * 2)
        assert terminated.all()
        assert rewards.tolist() == [-1.0, -1.0]
        assert all("Stage: preparation" in text for text in observations)
        assert infos["final_info"]["outcome"].tolist() == ["invalid_submission"] * 2
        envs.close()


class TestRender:
    def test_text_shows_calls_and_after_the_end_the_score(self) -> None:
        env = make(render_mode="ansi")
        play(env, DIAGNOSE, predict("last_value"))
        text = str(env.render())
        assert "extract_event_summary" in text
        assert "MSE" not in text
        env.step(answer_of(env.episode))
        assert "completed: reward" in str(env.render())

    def test_the_plot_shows_the_truth_after_the_end_only(self) -> None:
        env = make(render_mode="rgb_array")
        play(env, DIAGNOSE, predict("last_value"))
        before = env.render()
        env.step(answer_of(env.episode))
        after = env.render()
        assert isinstance(before, np.ndarray)
        assert before.dtype == np.uint8
        assert not np.array_equal(before, after)


def test_it_runs_where_no_forecasting_package_is_installed() -> None:
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'statsforecast', 'chronos', 'fracast'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import castgym, gymnasium\n"
        "env = gymnasium.make('CastR1-v0', models=['seasonal_naive'])\n"
        "env.reset(seed=0)\n"
        f"env.step({DIAGNOSE!r})\n"
        f"assert env.step({predict('seasonal_naive')!r})[4]['error'] is None\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
