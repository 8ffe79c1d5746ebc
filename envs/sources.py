"""Where episodes come from and how they are scored, for whoever plays many of them: trainers, collectors, evaluators.

A source joins the visible part (cases, windows) with its truth. Whoever plays gets an episode, which holds no truth;
only `score` sees it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from castgym.data.schema import Split
from castgym.envs.casesets import LoadedCases
from castgym.envs.core import AgentEpisode
from castgym.envs.episode import Episode, EpisodeConfig
from castgym.envs.judge import score_episode
from castgym.envs.rewards import decision_reward
from castgym.envs.scoring import COMBINED, find_objective
from castgym.tools.forecasters.pool import ForecasterPool


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """What an ended episode is worth.

    Attributes:
        reward: what a trainer maximises.
        error: what an evaluation minimises, on its own scale: S of a decision, MSE of a forecast; infinite where the
            answer could not be judged.
        valid: an answer was committed that keeps the rules.
        parts: everything else about the score, JSON.
    """

    reward: float
    error: float
    valid: bool
    parts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {"reward": self.reward, "error": self.error, "valid": self.valid, "parts": dict(self.parts)}


class EpisodeSource(Protocol):
    """Episodes of one split of one data set."""

    @property
    def name(self) -> str:
        """Name of the case set or window set."""
        ...

    @property
    def split(self) -> str:
        """The split that all its subjects belong to."""
        ...

    @property
    def fingerprint(self) -> str:
        """Content hash of the data, truth included."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the subjects, in a fixed order."""
        ...

    def dataset(self, subject_id: str) -> str:
        """The data set (or domain) of a subject, for balance and for tables."""
        ...

    def episode(self, subject_id: str) -> AgentEpisode:
        """A new episode."""
        ...

    def score(self, episode: AgentEpisode) -> EpisodeScore:
        """Judge an ended episode."""
        ...


class DecisionSource:
    """Episodes of FWBench cases.

    Args:
        loaded: cases and truth.
        split: cases to play.
        pool: `full`, or `no_tsfm` without time-series foundation models.
        forecasters: forecasters; the process's own by default.
        conditions: further fields of `EpisodeConfig`, such as `prompt_style="compact"`.
    """

    def __init__(
        self,
        loaded: LoadedCases,
        split: Split,
        *,
        pool: str = "full",
        forecasters: ForecasterPool | None = None,
        **conditions: Any,
    ) -> None:
        self.loaded = loaded
        self.cases = loaded.case_set.split(split)
        self._split = split
        self._pool = pool
        self._forecasters = forecasters
        self._conditions = conditions
        self._objective = find_objective(conditions.get("objective", COMBINED.name))
        EpisodeConfig.of(self.cases, self.cases.cases[0], pool, **conditions)  # refuse bad settings now

    @property
    def name(self) -> str:
        """Name of the case set."""
        return self.loaded.case_set.name

    @property
    def split(self) -> str:
        """The split."""
        return self._split

    @property
    def fingerprint(self) -> str:
        """Content hash of the whole case set."""
        return self.loaded.case_set.fingerprint

    @property
    def ids(self) -> tuple[str, ...]:
        """Case ids."""
        return tuple(case.case_id for case in self.cases)

    def dataset(self, subject_id: str) -> str:
        """The domain of a case."""
        return self.cases.by_id(subject_id).domain

    def episode(self, subject_id: str) -> Episode:
        """A new episode of a case."""
        case = self.cases.by_id(subject_id)
        return Episode(case, EpisodeConfig.of(self.cases, case, self._pool, **self._conditions), self._forecasters)

    def score(self, episode: AgentEpisode) -> EpisodeScore:
        """Judge a decision: the reward is -S, the error S.

        Raises:
            TypeError: the episode is of another kind.
        """
        if not isinstance(episode, Episode):
            raise TypeError(f"expected an episode of a case, found {type(episode).__name__}")
        score = score_episode(episode, self.loaded.case_set, self.loaded.targets, self._objective)
        return EpisodeScore(decision_reward(score), score.S, score.valid, score.to_json())
