"""Speed of the planning core, against the same protocol written as a plain loop over cases, in the same run.

Prints plans a second, the time of the whole classical menu for 1,251 cases, the time of an episode, and the ratio to
the loop: pandas for the samples, NumPy for the cost of every capacity, and a dynamic program in Python.
"""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from castgym.data.contract import ContractTerms, hourly_priority
from castgym.data.schema import Case
from castgym.envs.casesets import load_cases
from castgym.envs.episode import Episode, EpisodeConfig
from castgym.tools.calls import ToolCall
from castgym.tools.planning.batch import ContractBatch, classical_plans, realized_losses
from castgym.tools.planning.classical import CLASSICAL_METHODS, Distributions

PUBLISHED_CASES = 1251


def best_time(action: Callable[[], object], repeats: int = 3) -> float:
    """The least of some wall times, seconds: the machine may be busy with other work."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def plans_per_second(samples: int, count: int) -> float:
    rng = np.random.default_rng(0)
    terms = ContractTerms(hourly_priority=hourly_priority(pd.Timestamp("2026-07-24").date()))
    batch = ContractBatch(terms, np.tile(terms.hourly_priority, (count, 1)), np.ones(count))
    found = Distributions(rng.lognormal(0, 0.3, (count, 24, samples)), np.full(samples, 1 / samples))
    return count / best_time(lambda: batch.plan(found))


def loop_plan(samples: np.ndarray, case: Case) -> list[int]:
    """One plan the plain way: every sample against every capacity, then a dynamic program in Python."""
    terms = case.terms
    grid = np.array(terms.grid)
    z = samples / case.scale
    surplus = np.maximum(grid[None, None, :] - z[:, :, None], 0).mean(axis=1)
    shortage = np.maximum(z[:, :, None] - grid[None, None, :], 0).mean(axis=1)
    cost = terms.reservation * surplus + np.array(terms.hourly_priority)[:, None] * shortage
    block = cost.reshape(8, 3, -1).sum(axis=1)
    value, came = [block[0]], []
    for row in block[1:]:
        best = np.empty(len(grid))
        source = np.empty(len(grid), dtype=int)
        for end in range(len(grid)):
            allowed = np.flatnonzero(np.abs(grid - grid[end]) <= terms.ramp + 1e-10)
            source[end] = allowed[np.argmin(value[-1][allowed])]
            best[end] = value[-1][source[end]] + row[end]
        value.append(best)
        came.append(source)
    plan = [int(np.argmin(value[-1]))]
    for source in reversed(came):
        plan.insert(0, int(source[plan[0]]))
    return plan


def loop_samples(case: Case, method: str) -> np.ndarray:
    """Samples of one method by pandas selections, shape (24, S)."""
    history = pd.Series(case.history, case.history_hours)
    index = case.history_hours
    rows = []
    for hour in case.target_hours:
        same_hour = history[index.hour == hour.hour]
        same_week = same_hour[[moment.weekday() == hour.weekday() for moment in same_hour.index]]
        if method == "hour_of_day_empirical":
            rows.append(same_hour.to_numpy())
        elif method == "weekday_empirical":
            rows.append(same_week.to_numpy())
        elif method == "weekly_repeat":
            rows.append(same_week.to_numpy()[-1:])
        elif method == "level_adjusted_weekly":
            level = history.iloc[-24:].mean() - history.iloc[-192:-168].mean()
            rows.append(np.maximum(same_week.to_numpy()[-1:] + level, 0))
        else:
            length = {"all_hour_empirical": 336, "recent_week_empirical": 168, "recent_day_empirical": 24}[method]
            rows.append(history.to_numpy()[-length:])
    return np.stack(rows)


def main() -> None:
    few, many = plans_per_second(14, 4000), plans_per_second(336, 1000)
    print(f"optimised plans a second, one core: {few:,.0f} (14 samples), {many:,.0f} (336 samples)")

    loaded = load_cases()
    pool = list(loaded.case_set)[:PUBLISHED_CASES]
    demand = np.stack([loaded.targets[case.case_id].actual for case in pool])

    def menu() -> None:
        for method in CLASSICAL_METHODS:
            realized_losses(pool, classical_plans(pool, method)[0], demand)

    whole = best_time(menu)
    print(f"eight methods, realised losses and floors of {len(pool)} cases: {whole:.2f} s")

    compared = [method for method in CLASSICAL_METHODS if method != "calendar_residual"]
    sample = pool[:6]
    fast = {method: classical_plans(sample, method)[0].tolist() for method in compared}
    slow: dict[str, list[list[int]]] = {}

    def loop() -> None:
        for method in compared:
            slow[method] = [loop_plan(loop_samples(case, method), case) for case in sample]

    per_case_loop = best_time(loop, 1) / len(sample)
    assert slow == fast, "the loop and the batch disagree"
    per_case = best_time(lambda: [classical_plans(pool, method) for method in compared]) / len(pool)
    print(
        f"seven methods a case: {1e3 * per_case:.2f} ms in a batch, {1e3 * per_case_loop:.0f} ms in the plain loop: "
        f"ratio {per_case_loop / per_case:,.0f}"
    )

    cases = list(loaded.case_set.split("test"))[:200]

    def episodes() -> None:
        for case in cases:
            episode = Episode(case, EpisodeConfig.of(loaded.case_set, case))
            for method in ("weekly_repeat", "hour_of_day_empirical", "level_adjusted_weekly"):
                episode.observe()
                episode.act(ToolCall("classical_plan", {"series_id": case.series_id, "method": method}))
            episode.observe()
            episode.act('{"decisions": []}')

    print(f"an episode of three free tool calls: {1e3 * best_time(episodes) / len(cases):.2f} ms")


if __name__ == "__main__":
    main()
