"""Errors of the free reference: what an episode's answer has to beat to be worth imitating.

Decisions are compared with the best single free method, `hour_of_day_empirical`; forecasts with the last day repeated.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from castgym.agents.fixed import FALLBACK_METHOD
from castgym.data.errors import ConfigError
from castgym.envs.forecast_source import ForecastSource
from castgym.envs.scoring import COMBINED, find_objective, score_plans
from castgym.envs.sources import DecisionSource, EpisodeSource
from castgym.tools.forecasters.windows_classical import SeasonalNaive
from castgym.tools.planning.batch import classical_plans


def reference_errors(source: EpisodeSource, subject_ids: Sequence[str]) -> Mapping[str, float]:
    """The reference's error on each subject, on the scale of `EpisodeScore.error`.

    Args:
        source: cases or windows with their truth.
        subject_ids: ids.

    Raises:
        ConfigError: no reference is known for this kind of source.
    """
    if isinstance(source, DecisionSource):
        return _decision_errors(source, subject_ids)
    if isinstance(source, ForecastSource):
        return _forecast_errors(source, subject_ids)
    raise ConfigError(f"no free reference is known for a {type(source).__name__}")


def _decision_errors(source: DecisionSource, subject_ids: Sequence[str]) -> dict[str, float]:
    case_set = source.loaded.case_set
    cases = [case_set.by_id(subject_id) for subject_id in subject_ids]
    plans, _ = classical_plans(cases, FALLBACK_METHOD)
    free = [0] * len(cases)
    scores = score_plans(cases, source.loaded.targets, plans, free, case_set.sigma, case_set.tariff.budget)
    objective = find_objective(source.episode(subject_ids[0]).config.objective) if cases else COMBINED
    return {
        case.case_id: objective.score(score.R, 0, case_set.tariff.budget)
        for case, score in zip(cases, scores, strict=True)
    }


def _forecast_errors(source: ForecastSource, subject_ids: Sequence[str]) -> dict[str, float]:
    naive, loaded = SeasonalNaive(), source.loaded
    errors = {}
    for subject_id in subject_ids:
        miss = naive.predict([loaded.window(subject_id)])[0].values - loaded.target(subject_id).actual
        errors[subject_id] = float(np.mean(miss**2))
    return errors
