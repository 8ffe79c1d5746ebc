"""Collect a teacher's episodes on training data (Cast-R1, 3.5.1).

    python training/collect.py --out runs/teacher --limit 1000
    python training/collect.py --out runs/model --teacher model --model NAME --base-url http://localhost:8000/v1

The scripted teacher needs neither network nor model; `docs/teachers.md` says what it does. A model behind an
OpenAI-compatible endpoint plays under the same conditions; its key is read from OPENAI_API_KEY. Every finished episode
is one line of `episodes.jsonl`, on disk before the next begins; the same command continues after any interruption.
`castgym collect` is the same command.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console

from castgym.data.errors import ConfigError
from castgym.envs.casesets import EMBEDDED, load_cases
from castgym.envs.episode import POOLS
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import PromptMode
from castgym.envs.sources import DecisionSource, EpisodeSource
from castgym.training.collect_progress import collect_progress
from castgym.training.command import run_command
from castgym.training.training_split import TRAINING_SPLIT

if TYPE_CHECKING:
    from castgym.training.collecting import Teacher

FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"fwbench": ("plan", "decisions"), "castr1": ("forecast", "values")}
)
"""Answer forms of each benchmark, the default first."""

TEACHERS = ("scripted", "model")


def collect(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the episodes; continued where it exists.")],
    benchmark: Annotated[str, typer.Option(help="fwbench (decisions) or castr1 (forecasts).")] = "fwbench",
    data: Annotated[str, typer.Option(help="`embedded`, or a folder of cases or of windows.")] = EMBEDDED,
    files: Annotated[Path | None, typer.Option(help="Folder of the official files of windows.")] = None,
    dataset: Annotated[list[str] | None, typer.Option("--dataset", help="Data set of windows; repeat.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Rows between the origins of windows.")] = None,
    teacher: Annotated[str, typer.Option(help="scripted, or model behind an endpoint.")] = "scripted",
    exploration: Annotated[float, typer.Option(help="Chance of each deviation of the scripted teacher.")] = 0.1,
    model: Annotated[str | None, typer.Option(help="Name by which the endpoint knows the model.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of the endpoint, up to /v1.")] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature of the model.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a response of the model.")] = 4096,
    thinking: Annotated[bool | None, typer.Option(help="Thinking of models that can switch it.")] = None,
    tool_calls: Annotated[str, typer.Option(help="native, or text for endpoints that know no tools.")] = "native",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Windows, evenly from the data sets; all by default.")
    ] = None,
    per_window: Annotated[int, typer.Option(min=1, help="Episodes of each window.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Base seed.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes live at once.")] = 16,
    style: Annotated[str, typer.Option(help="compact prompts, or full ones.")] = "compact",
    prompt_mode: Annotated[str, typer.Option(help="memory or chat.")] = "memory",
    answer_form: Annotated[
        str | None, typer.Option(help="plan or decisions; for forecasts forecast or values. The first by default.")
    ] = None,
    pool: Annotated[str, typer.Option(help="Forecasters on sale: full or no_tsfm.")] = POOLS[0],
    forecaster: Annotated[list[str] | None, typer.Option("--forecaster", help="Forecaster of windows; repeat.")] = None,
    backtests: Annotated[int, typer.Option(min=0, help="Past horizons of the tool backtest_forecasters.")] = 0,
) -> None:
    """Collect a teacher's episodes on training data. The same command continues an interrupted collection."""
    # Imported late: the diagnostics of forecasting episodes take seconds.
    from castgym.training.collecting import CollectSettings, chosen_subjects
    from castgym.training.collecting import collect as collect_episodes

    form = answer_form or FORMS.get(benchmark, ("",))[0]
    for name, value, allowed in (
        ("benchmark", benchmark, tuple(FORMS)),
        ("teacher", teacher, TEACHERS),
        ("style", style, get_args(PromptStyle)),
        ("prompt-mode", prompt_mode, get_args(PromptMode)),
        ("answer-form", form, FORMS.get(benchmark, ())),
    ):
        if value not in allowed:
            raise ConfigError(f"expected --{name} to be one of {', '.join(allowed)}, found {value!r}")
    player = (
        _scripted(benchmark, exploration, form)
        if teacher == "scripted"
        else _model(model, base_url, temperature, max_tokens, thinking, tool_calls, concurrency)
    )
    conditions: dict[str, Any] = {"prompt_style": style, "prompt_mode": prompt_mode, "answer_form": form}
    source: EpisodeSource
    if benchmark == "fwbench":
        source = DecisionSource(load_cases(data), TRAINING_SPLIT, pool=pool, **conditions)
    else:
        from castgym.envs.forecast_source import ForecastSource

        conditions |= {"models": tuple(forecaster) if forecaster else None, "backtests": backtests}
        source = ForecastSource(data, TRAINING_SPLIT, stride=stride, datasets=dataset, files=files, **conditions)
    console = Console()
    with collect_progress(console) as report:
        settings = CollectSettings(per_window=per_window, seed=seed, concurrency=concurrency)
        done = collect_episodes(source, player, chosen_subjects(source, limit), settings, out, report)
    left = f", {done.missing} failed by the infrastructure (see faults.jsonl)" if done.missing else ""
    console.print(
        f"{done.episodes} episodes in {out}{left}; {done.played} played in {done.seconds:.1f} s. "
        f"Next: castgym select {out} --out ...",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _scripted(benchmark: str, exploration: float, form: str) -> "Teacher":
    from castgym.agents.teachers import DecisionTeacher, ForecastTeacher

    if benchmark == "castr1":
        return ForecastTeacher(exploration=exploration)
    return DecisionTeacher(exploration=exploration, answer_form=form)  # type: ignore[arg-type]  # checked there


def _model(
    model: str | None,
    base_url: str | None,
    temperature: float,
    max_tokens: int,
    thinking: bool | None,
    tool_calls: str,
    concurrency: int,
) -> "Teacher":
    from castgym.agents.chat import ChatAgent
    from castgym.agents.sampling import SamplingSettings

    if model is None:
        raise ConfigError("expected --model with --teacher model: the name by which the endpoint knows it")
    sampling = SamplingSettings(temperature=temperature, max_tokens=max_tokens, thinking=thinking)
    return ChatAgent(
        model,
        base_url,
        sampling=sampling,
        concurrency=concurrency,
        tool_calls=tool_calls,  # type: ignore[arg-type]  # checked there
    )


if __name__ == "__main__":
    run_command(collect)
