"""Joins an ended episode with the truth, which the episode itself never holds."""

from collections.abc import Mapping

from castgym.data.schema import CaseSet, Target
from castgym.envs.episode import Episode
from castgym.envs.scoring import COMBINED, Objective, Score, score_submission


def score_episode(
    episode: Episode, case_set: CaseSet, targets: Mapping[str, Target], objective: Objective = COMBINED
) -> Score:
    """Score an ended episode.

    Args:
        episode: the episode.
        case_set: sigma and budget.
        targets: truth by case id.
        objective: weights of loss and cost.
    """
    case, end = episode.case, episode.end
    return score_submission(
        case,
        targets[case.case_id],
        end.submission,
        spent=episode.spent,
        sigma=case_set.sigma[case.domain],
        budget=case_set.tariff.budget,
        rejection=end.rejection or end.outcome,
        objective=objective,
    )
