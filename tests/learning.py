"""Real trajectories and a tiny model for tests of training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factories import make_case, make_loaded

from castgym.agents.fixed import ClassicalPolicy
from castgym.envs.sources import DecisionSource
from castgym.envs.trajectory import Trajectory
from castgym.training.tiny_model import TinySize, build_tiny_model, transcript_texts

METHODS = ("weekly_repeat", "hour_of_day_empirical", "weekday_empirical")
SMALL = TinySize(hidden=64, layers=2, vocabulary=512)


def play_classical(source: DecisionSource, subject_id: str, method: str, thought: str = "") -> Trajectory:
    """An episode that gets one free plan and takes it, with a thought before each response."""
    policy = ClassicalPolicy(method)
    episode = source.episode(subject_id)
    trajectory = Trajectory.begin(episode)
    while not episode.done:
        prompt = episode.observe()
        response = policy.act(prompt)
        if isinstance(response, str) and episode.config.answer_form == "plan":
            response = json.dumps({"plan": prompt.memory.plans[-1].plan_id})
        if isinstance(response, str) and thought:
            response = f"<think>\n{thought}\n</think>\n\n{response}"
        trajectory.add(prompt, response, episode.act(response))
    trajectory.finish(episode, source.score(episode))
    trajectory.meta = {"split": "train"}  # what collection notes on training cases
    return trajectory


def play_some(count: int = 6, thought: str = "", **conditions: Any) -> list[Trajectory]:
    """Episodes of small cases with every free method in turn, in the compact style by default."""
    fields = {"prompt_style": "compact", "answer_form": "plan", **conditions}
    cases = [make_case(seed, family) for seed in range(3) for family in ("day_ahead", "week_ahead")]
    source = DecisionSource(make_loaded(cases), "test", **fields)
    return [
        play_classical(source, source.ids[number % len(source.ids)], METHODS[number % len(METHODS)], thought)
        for number in range(count)
    ]


def write_trajectories(path: Path, trajectories: Sequence[Trajectory]) -> Path:
    """One JSON line each."""
    path.write_text("".join(json.dumps(trajectory.to_json()) + "\n" for trajectory in trajectories))
    return path


def write_tiny(path: Path, trajectories: Sequence[Trajectory], seed: int = 0) -> Path:
    """A tiny model whose tokenizer knows the trajectories."""
    build_tiny_model(path, transcript_texts(trajectories), SMALL, seed=seed)
    return path
