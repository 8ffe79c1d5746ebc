"""Step rows: each response of a trajectory is one row of supervised fine-tuning, with the prompt that it answered.

A row holds token ids, made by `castgym.agents.rendering` as in generation and reinforcement: nothing is rendered in
another way here. In memory mode the prompts of a trajectory's rows are independent of one another, as the episode
rebuilt them; in chat mode each prompt holds the conversation before it, and earlier responses are context without loss.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from castgym.agents.rendering import prompt_text, response_text, token_ids
from castgym.data.errors import ConfigError, DataError
from castgym.data.files import sha256_hex
from castgym.envs.trajectory import Step, Trajectory, said

IGNORED = -100
"""Label of a token without loss."""

UNFIT_OUTCOMES = ("truncated", "infrastructure_error")
"""Endings whose last response is no response: it was cut, or never came."""

OverLong = Literal["refuse", "drop"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One response and the prompt that it answered, as token ids.

    Attributes:
        prompt_ids: up to and with the generation prompt.
        response_ids: the response, with the token that ends the turn.
        case_id: case or window of the trajectory.
        repeat: its repetition.
        step: number of the response in it, from 0.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    case_id: str
    repeat: int
    step: int

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def input_ids(self) -> list[int]:
        """Prompt and response."""
        return [*self.prompt_ids, *self.response_ids]

    @property
    def labels(self) -> list[int]:
        """The response's ids, and `IGNORED` for each token of the prompt."""
        return [*(IGNORED for _ in self.prompt_ids), *self.response_ids]


@dataclass(frozen=True, slots=True)
class LengthReport:
    """Lengths of rows in tokens, and what was over the limits.

    Attributes:
        rows: rows that came in.
        trajectories: that they belong to.
        lengths: name -> least, median, 95th percentile, most tokens, of prompts, responses and both together.
        response_tokens: tokens with loss in the rows that are kept.
        over_prompt: rows whose prompt is over its limit.
        over_response: rows whose response is over its limit.
        dropped: rows left out.
    """

    rows: int
    trajectories: int
    lengths: Mapping[str, tuple[int, int, int, int]]
    response_tokens: int
    over_prompt: int
    over_response: int
    dropped: int

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows of {self.trajectories:,} trajectories; tokens (least, median, 95%, most):"]
        lines += [f"  {name:<9}{' '.join(f'{value:>8,}' for value in row)}" for name, row in self.lengths.items()]
        lines.append(
            f"  over the limits: {self.over_prompt:,} prompts, {self.over_response:,} responses; "
            f"{self.dropped:,} rows dropped; {self.response_tokens:,} tokens with loss"
        )
        return "\n".join(lines)


def read_trajectories(paths: Iterable[Path]) -> Iterator[Trajectory]:
    """The trajectories of JSON-lines files.

    Raises:
        DataError: a file is missing or holds something else; the message names the line.
    """
    for path in paths:
        try:
            with path.open(encoding="utf-8") as stream:
                for number, line in enumerate(stream, start=1):
                    try:
                        yield Trajectory.from_json(json.loads(line))
                    except (ValueError, AttributeError) as error:
                        raise DataError(f"{path}, line {number}: expected a trajectory: {error}") from error
        except OSError as error:
            raise DataError(f"expected a file of trajectories: {error}") from error


def step_rows(trajectory: Trajectory, tokenizer: Any, thinking: bool | None = None) -> list[StepRow]:
    """The rows of a trajectory, one a response, in order.

    Args:
        trajectory: an ended episode.
        tokenizer: of the model that learns.
        thinking: switch of the chat template; the same in training and in every later use of the model.

    Raises:
        DataError: the last response was cut or never came, or a prompt's tools are unknown.
        ConfigError: the tokenizer's chat template does not end a turn with its end-of-sequence token.
    """
    if trajectory.end.get("outcome") in UNFIT_OUTCOMES:
        raise DataError(
            f"{trajectory.case_id}, repeat {trajectory.repeat}: ended as {trajectory.end['outcome']}, which is nothing "
            "to learn from: select trajectories first"
        )
    end = end_of_turn(tokenizer)
    rows = []
    for number, step in enumerate(trajectory.steps):
        prompt, response = step_texts(tokenizer, trajectory, step, thinking)
        rows.append(
            StepRow(
                tuple(token_ids(tokenizer, prompt)),
                (*token_ids(tokenizer, response), end),
                trajectory.case_id,
                trajectory.repeat,
                number,
            )
        )
    return rows


def step_texts(tokenizer: Any, trajectory: Trajectory, step: Step, thinking: bool | None = None) -> tuple[str, str]:
    """Prompt and response of a step as text, with all markup but the token that ends the turn."""
    prompt = prompt_text(tokenizer, step.messages, trajectory.tools(step), thinking)
    return prompt, response_text(said(step))


def end_of_turn(tokenizer: Any) -> int:
    """Id of the token that ends a response: the tokenizer's end-of-sequence token, which generation stops at.

    Raises:
        ConfigError: the chat template ends an assistant's turn in another way, so that a model would not learn to stop.
    """
    marker = "responded"
    conversation = [{"role": "user", "content": "asked"}, {"role": "assistant", "content": marker}]
    text: str = tokenizer.apply_chat_template(conversation, tokenize=False)
    after = text[text.rindex(marker) + len(marker) :].strip()
    if tokenizer.eos_token is None or after != tokenizer.eos_token:
        raise ConfigError(
            f"expected the chat template to end a response with the tokenizer's eos_token {tokenizer.eos_token!r}, "
            f"found {after!r}: set tokenizer.eos_token to the token that ends a turn"
        )
    end: int = tokenizer.eos_token_id
    return end


def check_lengths(
    rows: Sequence[StepRow],
    max_prompt: int,
    max_response: int,
    over_long: OverLong,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[StepRow], LengthReport]:
    """Report the rows' lengths, then refuse or drop those over a limit. Nothing is ever cut.

    Args:
        rows: all rows.
        max_prompt: tokens of a prompt.
        max_response: tokens of a response, the end of the turn included.
        over_long: what to do with a row over a limit.
        say: is given the report, before an error is raised.

    Returns:
        The rows within the limits, and the report.

    Raises:
        DataError: a row is over a limit and `over_long` is `refuse`, or no row is left.
    """
    if not rows:
        raise DataError("expected at least one trajectory with a response, found none")
    prompts = np.array([len(row.prompt_ids) for row in rows])
    responses = np.array([len(row.response_ids) for row in rows])
    fits = (prompts <= max_prompt) & (responses <= max_response)
    dropped = int((~fits).sum())
    report = LengthReport(
        rows=len(rows),
        trajectories=len({(row.case_id, row.repeat) for row in rows}),
        lengths={
            name: _spread(values)
            for name, values in (("prompt", prompts), ("response", responses), ("together", prompts + responses))
        },
        response_tokens=int(responses[fits].sum()),
        over_prompt=int((prompts > max_prompt).sum()),
        over_response=int((responses > max_response).sum()),
        dropped=dropped if over_long == "drop" else 0,
    )
    say(str(report))
    if dropped and over_long == "refuse":
        row = rows[int(np.argmin(fits))]
        raise DataError(
            f"{dropped} of {len(rows)} rows are over the limits of {max_prompt} prompt and {max_response} response "
            f"tokens; the first is step {row.step} of {row.case_id}, repeat {row.repeat}, with "
            f"{len(row.prompt_ids)} and {len(row.response_ids)}: raise the limits, or set over_long: drop"
        )
    kept = [row for row, fit in zip(rows, fits, strict=True) if fit]
    if not kept:
        raise DataError(f"all {len(rows)} rows are over the limits: raise max_prompt_tokens or max_response_tokens")
    return kept, report


def rows_digest(rows: Sequence[StepRow]) -> str:
    """Short content hash of the rows' tokens, in order."""
    ids = (part for row in rows for part in (row.prompt_ids, row.response_ids))
    return sha256_hex(*(np.array(part, dtype=np.int64).tobytes() for part in ids))[:16]


def _spread(values: np.ndarray[Any, Any]) -> tuple[int, int, int, int]:
    least, median, high, most = np.quantile(values, [0, 0.5, 0.95, 1], method="nearest")
    return int(least), int(median), int(high), int(most)
