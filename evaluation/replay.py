"""Re-execution of the episodes that a run kept: nothing in a result needs to be believed."""

import json
from pathlib import Path

from castgym.data.errors import ConfigError, DataError
from castgym.envs.casesets import LoadedCases
from castgym.envs.episode import Episode, EpisodeConfig
from castgym.envs.judge import score_episode
from castgym.envs.trajectory import ReplayMismatchError, Trajectory, replay
from castgym.evaluation.runs import Run
from castgym.tools.forecasters.pool import ForecasterPool


def replay_run(path: Path, loaded: LoadedCases, pool: ForecasterPool) -> int:
    """Play every kept trajectory of a run again and score it anew.

    Args:
        path: a run folder with `episodes.jsonl`.
        loaded: the case set of the run.
        pool: forecasters.

    Returns:
        Number of trajectories.

    Raises:
        ConfigError: the run was made on another case set, or kept no episodes.
        DataError: a line of `episodes.jsonl` is no trajectory.
        ReplayMismatchError: a prompt, result, ending, spending or score differs from what was saved.
    """
    run = Run(path)
    if run.config.fingerprint != loaded.case_set.fingerprint:
        raise ConfigError(f"{path} was run on another case set than {loaded.source} (fingerprints differ)")
    if not (path / "episodes.jsonl").is_file():
        raise ConfigError(f"{path} kept no episodes: run it with --keep-episodes")
    rows = {(row.case_id, row.repeat): row for row in run.rows}
    count = 0
    lines = (path / "episodes.jsonl").read_bytes().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            saved = _trajectory(line)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path / 'episodes.jsonl'}, line {number}: {error}") from error
        case = loaded.case_set.by_id(saved.case_id)
        config = EpisodeConfig.of(
            loaded.case_set,
            case,
            run.config.pool,
            prompt_mode=run.config.prompt_mode,
            answer_form=run.config.answer_form,
            prompt_style=run.config.prompt_style,
            objective=run.config.objective,
        )
        episode = Episode(case, config, pool)
        replay(saved, episode)
        score = score_episode(episode, loaded.case_set, loaded.targets)
        row = rows.get((saved.case_id, saved.repeat))
        if row is None:
            continue  # the crash came between the episode and its row: the row's own episode follows
        if (row.S, row.loss, row.credits, row.grid_index) != (score.S, score.loss, score.credits, score.grid_index):
            raise ReplayMismatchError(f"{saved.case_id}: the row says S {row.S}, loss {row.loss}; replayed: {score}")
        count += 1
    return count


def _trajectory(line: bytes) -> Trajectory:
    saved = Trajectory.from_json(json.loads(line))
    if not isinstance(saved.case_id, str) or not isinstance(saved.repeat, int) or isinstance(saved.repeat, bool):
        raise DataError(f"expected a case id and a number of the repeat, found {saved.case_id!r}, {saved.repeat!r}")
    return saved
