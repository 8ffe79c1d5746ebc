"""Many live episodes at once: each waits for the model on its own, or all step together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from castgym.agents.limits import TimeLimitError, TimeLimits
from castgym.agents.replies import Reply
from castgym.agents.sampling import turn_seed
from castgym.data.errors import InfrastructureError
from castgym.envs.core import AgentEpisode
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.envs.trajectory import Trajectory

T = TypeVar("T")


class LiveEpisode(Protocol):
    """An episode as a player needs it."""

    @property
    def done(self) -> bool:
        """The episode has ended."""

    def observe(self) -> Prompt:
        """The prompt of the next response."""

    def act(self, response: Response, *, truncated: bool = False) -> Any:
        """Take a response; returns the transition."""


class Speaker(Protocol):
    """An agent that answers one prompt at a time, many at once."""

    async def respond(self, prompt: Prompt, *, seed: int | None = None) -> Reply:
        """The response to a prompt."""


@runtime_checkable
class BatchSpeaker(Protocol):
    """An agent that answers many prompts in one pass."""

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The prompt's token ids, or an `InfrastructureError`."""

    def generate(self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[int] | None = None) -> list[Reply]:
        """The responses to encoded prompts."""


E_co = TypeVar("E_co", bound=LiveEpisode, covariant=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """One response of an episode: what was asked, what was said, what it led to."""

    prompt: Prompt
    reply: Reply
    transition: Any


@dataclass(frozen=True, slots=True)
class Played(Generic[E_co]):
    """An episode that was played.

    Attributes:
        index: its position among the given episodes.
        episode: the episode; it is `done` unless there is an error.
        turns: its responses.
        seconds: how long it took, with waits.
        error: the infrastructure's fault that stopped it.
    """

    index: int
    episode: E_co
    turns: tuple[Turn, ...]
    seconds: float
    error: InfrastructureError | None = None

    def trajectory(self: "Played[AgentEpisode]", repeat: int = 0) -> Trajectory:
        """What was seen and said, without a score yet.

        Args:
            repeat: number of the repetition.
        """
        trajectory = Trajectory.begin(self.episode, repeat)
        for turn in self.turns:
            trajectory.add(turn.prompt, turn.reply.message, turn.transition)
        return trajectory


@dataclass(slots=True)
class _Playing(Generic[E_co]):
    """An episode in play."""

    index: int
    episode: E_co
    turns: list[Turn] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def ended(self, error: InfrastructureError | None = None) -> Played[E_co]:
        return Played(self.index, self.episode, tuple(self.turns), time.perf_counter() - self.started, error)

    def seed(self, seeds: Sequence[int] | None) -> int | None:
        return None if seeds is None else turn_seed(seeds[self.index], len(self.turns))


async def play_many(
    agent: Speaker,
    episodes: Iterable[E_co],
    concurrency: int = 64,
    *,
    limits: TimeLimits | None = None,
    seeds: Sequence[int] | None = None,
    workers: int = 2,
) -> AsyncIterator[Played[E_co]]:
    """Play episodes side by side and yield each as it ends.

    The episodes' own work (tools, forecasts, making the next episode) runs in threads, so that the event loop is never
    held up. An episode that a limit stopped may still be at work in its thread: it must not be used again. A tool that
    never returns keeps its thread; give an episode limit too, or more workers than tools can hang.

    Args:
        agent: who responds.
        episodes: not yet ended episodes; taken one by one when there is a place, so a generator may make them.
        concurrency: episodes live at once.
        limits: time limits.
        seeds: one for each episode, from which each response's seed is derived; without them the agent's own holds.
        workers: threads for the episodes' own work.

    Yields:
        Each episode with its turns. Faults of the infrastructure are its `error`.

    Raises:
        TimeLimitError: the run limit passed; what had not ended is dropped.
    """
    limits = limits or TimeLimits()
    threads = ThreadPoolExecutor(workers, thread_name_prefix="episode")
    ended: asyncio.Queue[Played[E_co] | None] = asyncio.Queue()
    source = enumerate(episodes)
    turn = asyncio.Lock()  # a generator runs in one thread at a time
    loop = asyncio.get_running_loop()

    async def player() -> None:
        while True:
            async with turn:
                item = await loop.run_in_executor(threads, _next, source)
            if item is None:
                return
            ended.put_nowait(await _play(agent, _Playing(*item), limits, seeds, threads))

    players = [asyncio.create_task(player()) for _ in range(concurrency)]
    finished = asyncio.create_task(asyncio.wait(players, return_when=asyncio.FIRST_EXCEPTION))
    finished.add_done_callback(lambda _: ended.put_nowait(None))
    deadline = None if limits.run is None else loop.time() + limits.run
    count = 0
    try:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    played = await ended.get()
            except TimeoutError:
                raise TimeLimitError("run", limits.run or 0.0, f"after {count} episodes had ended") from None
            if played is None:
                break
            count += 1
            yield played
        for task in players:
            if task.done():
                task.result()
    finally:
        for task in players:
            task.cancel()
        finished.cancel()
        await asyncio.gather(*players, finished, return_exceptions=True)
        threads.shutdown(wait=False, cancel_futures=True)


def play_batch(
    agent: BatchSpeaker, episodes: Sequence[E_co], *, seeds: Sequence[int] | None = None
) -> list[Played[E_co]]:
    """Play episodes together: in each round the model answers the prompts of all that are still live.

    Args:
        agent: who responds.
        episodes: not yet ended episodes.
        seeds: one for each episode, from which each response's seed is derived; without them the agent's own holds.

    Returns:
        The episodes in their order. Faults of the infrastructure, such as a prompt over the limit, are their `error`
        and leave the others in play.
    """
    played: dict[int, Played[E_co]] = {}
    live = [_Playing(index, episode) for index, episode in enumerate(episodes)]
    while live:
        asked: list[tuple[_Playing[E_co], Prompt, tuple[int, ...]]] = []
        for playing in live:
            prompt = playing.episode.observe()
            try:
                asked.append((playing, prompt, agent.encode(prompt)))
            except InfrastructureError as error:
                played[playing.index] = playing.ended(error)
        drawn = None if seeds is None else [turn_seed(seeds[p.index], len(p.turns)) for p, _, _ in asked]
        replies = agent.generate([ids for _, _, ids in asked], seeds=drawn)
        live = []
        for (playing, prompt, _), reply in zip(asked, replies, strict=True):
            try:
                transition = playing.episode.act(reply.message)
            except InfrastructureError as error:
                played[playing.index] = playing.ended(error)
                continue
            playing.turns.append(Turn(prompt, reply, transition))
            if playing.episode.done:
                played[playing.index] = playing.ended()
            else:
                live.append(playing)
    return [played[index] for index in range(len(episodes))]


async def _play(
    agent: Speaker,
    playing: _Playing[E_co],
    limits: TimeLimits,
    seeds: Sequence[int] | None,
    threads: ThreadPoolExecutor,
) -> Played[E_co]:
    episode = playing.episode
    try:
        async with asyncio.timeout(limits.episode) as timer:
            prompt: Prompt | None = await _step(threads, limits, partial(_observe, episode))
            while prompt is not None:
                reply = await agent.respond(prompt, seed=playing.seed(seeds))
                transition, following = await _step(threads, limits, partial(_advance, episode, reply))
                playing.turns.append(Turn(prompt, reply, transition))
                prompt = following
    except TimeoutError:
        if not timer.expired():
            raise
        detail = f"in turn {len(playing.turns) + 1}"
        return playing.ended(TimeLimitError("episode", limits.episode or 0.0, detail))
    except InfrastructureError as error:
        return playing.ended(error)
    return playing.ended()


async def _step(threads: ThreadPoolExecutor, limits: TimeLimits, work: Callable[[], T]) -> T:
    """Do an episode's own work in a thread."""
    loop = asyncio.get_running_loop()
    if limits.tool is None:
        return await loop.run_in_executor(threads, work)
    begun = asyncio.Event()  # the wait for a free thread is not the tool's

    def timed() -> T:
        loop.call_soon_threadsafe(begun.set)
        return work()

    done = loop.run_in_executor(threads, timed)
    await begun.wait()
    finished, _ = await asyncio.wait([done], timeout=limits.tool)
    if not finished:
        raise TimeLimitError("tool", limits.tool, "in a step of an episode")
    return done.result()


def _observe(episode: LiveEpisode) -> Prompt | None:
    return None if episode.done else episode.observe()


def _advance(episode: LiveEpisode, reply: Reply) -> tuple[Any, Prompt | None]:
    """What a response leads to, and the next prompt unless the episode has ended."""
    return episode.act(reply.message), _observe(episode)


def _next(source: Iterator[tuple[int, E_co]]) -> tuple[int, E_co] | None:
    return next(source, None)
