"""How many requests run at once, and the waits between attempts."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from castgym.agents.concurrency import AdaptiveLimit, Backoff


def test_requests_in_flight_together_lower_the_limit_once_and_successes_raise_it_again() -> None:
    async def play() -> list[int]:
        limit = AdaptiveLimit(16)
        seen = []
        async with limit.slot() as one, limit.slot() as two:
            limit.throttled(one)
            limit.throttled(two)
            seen.append(limit.limit)
        for _ in range(200):
            limit.succeeded()
        seen.append(limit.limit)
        for _ in range(20):
            async with limit.slot() as decreases:
                limit.throttled(decreases)
        return [*seen, limit.limit]

    assert asyncio.run(play()) == [8, 16, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30), st.integers(1, 4))
def test_places_are_never_lost_or_doubled_when_waiting_requests_are_cancelled(
    steps: list[tuple[int, bool]], most: int
) -> None:
    async def play() -> None:
        limit = AdaptiveLimit(most)
        running = peak = 0

        async def request(rounds: int) -> None:
            nonlocal running, peak
            async with limit.slot():
                running += 1
                peak = max(peak, running)
                try:
                    for _ in range(rounds):
                        await asyncio.sleep(0)
                finally:
                    running -= 1

        tasks = []
        for rounds, cancelled in steps:
            tasks.append(asyncio.create_task(request(rounds)))
            await asyncio.sleep(0)
            if cancelled:
                tasks[len(tasks) // 2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert peak <= most and running == 0
        assert (limit._running, list(limit._waiting)) == (0, [])

    asyncio.run(play())


@given(st.integers(1, 2000), st.one_of(st.none(), st.floats(0, 1e6)), st.integers(0, 5))
def test_waits_grow_and_stay_within_their_cap(attempt: int, asked: float | None, seed: int) -> None:
    wait = Backoff(0.5, 60.0, seed).seconds(attempt, asked)
    doubled = min(60.0, 0.5 * 2.0 ** min(attempt - 1, 20))
    assert min(60.0, max(doubled / 2, asked or 0)) <= wait <= min(60.0, max(doubled, asked or 0))
