"""Time the paired bootstrap at the published size (1,251 cases, 70 groups, 10,000 resamples) against a plain loop.

    python benchmarks/bench_bootstrap.py

Both are measured in this run, on the same data; the loop is timed on fewer resamples and scaled. It must find the
same differences, or the benchmark fails.
"""

import time

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from castgym.evaluation.aggregate import METRICS, case_means, unit_means
from castgym.evaluation.bootstrap import RESAMPLES, SEED, draw_counts, paired_intervals, resampled_means

COHORTS = (
    ("electricity-winter", "electricity", 339, 1 / 6),
    ("electricity-july", "electricity", 377, 1 / 6),
    ("electricity-august", "electricity", 375, 1 / 6),
    ("cycle-hire-may", "cycle_hire", 160, 1 / 2),
)
GROUPS = {"electricity": 50, "cycle_hire": 20}
WEIGHTS = {name: weight for name, _, _, weight in COHORTS}
LOOPED = 1000
REPETITIONS = 5


def published_size(seed: int) -> pd.DataFrame:
    """Random results with the published number of cases in each cohort."""
    rng = np.random.default_rng(seed)
    rows = []
    for cohort, domain, count, _ in COHORTS:
        groups = GROUPS[domain]
        for number in range(count):
            date, place = divmod(number, 2 * groups)
            group, family = f"{domain}-{place // 2:02d}", ("day_ahead", "week_ahead")[place % 2]
            rows.append((f"{group}-{cohort}-{date}-{family}", 0, cohort, domain, group, family))
    frame = pd.DataFrame(rows, columns=["case_id", "repeat", "cohort", "domain", "group_id", "family"])
    scores = {metric: rng.gamma(2.0, size=len(frame)) for metric in METRICS}
    return frame.assign(outcome="completed", valid=True, **scores)


def looped_means(units: pd.DataFrame, resamples: int) -> NDArray[np.float64]:
    """The straightforward way: for each resample gather the units of the groups drawn, then average by cohort."""
    values = units.to_numpy()
    cohort = units.index.get_level_values("cohort").to_numpy()
    groups = [f"{domain}-{number:02d}" for domain in sorted(GROUPS) for number in range(GROUPS[domain])]
    cluster = pd.Index(groups).get_indexer(units.index.get_level_values("group_id"))
    counts = draw_counts([GROUPS[domain] for domain in sorted(GROUPS)], RESAMPLES, SEED)[:resamples].astype(int)
    results = []
    for drawn in counts:
        sample = np.repeat(np.arange(len(values)), drawn[cluster])
        means = [weight * values[sample[cohort[sample] == name]].mean(axis=0) for name, weight in WEIGHTS.items()]
        results.append(np.sum(means, axis=0))
    return np.array(results)


def main() -> None:
    a, b = published_size(0), published_size(1)
    times = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        paired_intervals(a, b, WEIGHTS)
        times.append(time.perf_counter() - started)
    whole = float(np.median(times))

    units = unit_means(case_means(a)) - unit_means(case_means(b))
    started = time.perf_counter()
    fast = resampled_means(units, WEIGHTS)
    matrix = time.perf_counter() - started
    started = time.perf_counter()
    slow = looped_means(units, LOOPED)
    loop = (time.perf_counter() - started) * RESAMPLES / LOOPED
    np.testing.assert_allclose(fast[:LOOPED], slow, rtol=1e-9, atol=1e-12)

    print(f"cases {len(a):,}, groups {sum(GROUPS.values())}, resamples {RESAMPLES:,}, metrics {len(METRICS)}")
    print(f"paired intervals, rows to result   {whole * 1e3:9.1f} ms (median of {REPETITIONS})")
    print(f"resampling alone, matrix products  {matrix * 1e3:9.1f} ms")
    print(f"resampling alone, plain loop       {loop * 1e3:9.1f} ms ({LOOPED} resamples, scaled)")
    print(f"ratio loop / matrix                {loop / matrix:9.0f}")


if __name__ == "__main__":
    main()
