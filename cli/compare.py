"""`castgym compare`, `castgym contrasts` and `castgym power`: what differs between runs, and what could be seen."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from castgym.cli.console import say
from castgym.data.errors import ConfigError
from castgym.envs.outcomes import OUTCOMES
from castgym.envs.scoring import COMBINED, OBJECTIVES, find_objective
from castgym.evaluation.aggregate import METRICS
from castgym.evaluation.bootstrap import LEVEL, Interval, run_frame
from castgym.evaluation.comparison import Comparison, Part, ToolUse, require_same_cases
from castgym.evaluation.comparison import compare as compare_pair
from castgym.evaluation.contrasts import Contrast, access_contrasts, thinking_contrasts, weight_sensitivity
from castgym.evaluation.power import POWER, detectable_effect
from castgym.evaluation.repeats import Repeatability, repeatability, winner_flips
from castgym.evaluation.runs import Run


def compare(
    a: Annotated[Path, typer.Argument(help="Run A.")],
    b: Annotated[Path, typer.Argument(help="Run B, over the same cases.")],
    objective: Annotated[str, typer.Option(help="Weights of S: " + ", ".join(OBJECTIVES) + ".")] = COMBINED.name,
) -> None:
    """Compare two runs: the effect A - B with its interval, and which cohorts, leads and purchases it comes from."""
    runs = [Run(a), Run(b)]
    found = compare_pair(*runs, objective=find_objective(objective))
    console = Console()
    say(f"A: {found.a}\nB: {found.b}\nDifferences are A - B: negative favours A. {LEVEL:.0%} paired intervals.\n")
    console.print(_effect_table(found))
    say(f"S: {found.loss_part:+.4f} by the loss and {found.cost_part:+.4f} by the credits.\n")
    console.print(_parts_table("cohort, lead", found.cells))
    console.print(_parts_table("purchases", found.purchases))
    console.print(_parts_table("validity", found.validity))
    if found.on_both_valid is not None:
        say(f"On the {found.on_both_valid.cases:,} cases valid for both: S {_interval(found.on_both_valid['S'])}\n")
    console.print(_outcome_table(runs))
    console.print(_tools_table(found.tools))
    console.print(_weights_table(weight_sensitivity(runs)))
    if all(run.config.repeats > 1 for run in runs):
        console.print(_repeats_table([repeatability(run) for run in runs]))
        say(f"Another repeat turns the winner of a case around with probability {winner_flips(*runs):.1%}.\n")
    for note in found.notes:
        say(f"* {note}")


def contrasts(runs: Annotated[list[Path], typer.Argument(help="Run folders.")]) -> None:
    """The same configuration with and without foundation models, and with and without thinking (FWBench Table 4)."""
    given = [Run(path) for path in runs]
    console, refusals = Console(), []
    for title, contrast in (
        ("full tools less no foundation models", access_contrasts),
        ("thinking less not thinking", thinking_contrasts),
    ):
        try:
            lines = contrast(given)
        except ConfigError as error:
            refusals.append(str(error))
            continue
        say(f"{title} (`valid` and `S`: without)")
        console.print(_contrast_table(lines))
    if len(refusals) == 2:
        raise ConfigError("; ".join(refusals))


def power(
    a: Annotated[Path, typer.Argument(help="Pilot run A: any policy that stands for the planned one.")],
    b: Annotated[Path, typer.Argument(help="Pilot run B, over the same cases.")],
    groups: Annotated[
        list[str] | None, typer.Option(help="Planned groups of a domain, as electricity=50; repeat.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Planned repeats; the pilot's by default.")] = None,
    metric: Annotated[str, typer.Option(help="What is compared: " + ", ".join(METRICS) + ".")] = "S",
    chance: Annotated[float, typer.Option("--power", help="Chance of finding a difference of that size.")] = POWER,
) -> None:
    """The smallest difference that a planned comparison can show, before it is run."""
    runs = [Run(a), Run(b)]
    require_same_cases(runs[0].config, runs[1].config)
    config = runs[0].config
    found = detectable_effect(
        run_frame(runs[0]),
        run_frame(runs[1]),
        config.cohort_weights,
        groups=dict(map(_planned, groups or ())),
        repeats=repeats,
        metric=metric,
        power=chance,
        partial=not config.whole_index,
    )
    digits = ",.0f" if metric == "credits" else ".4f"
    where = ", ".join(f"{count} groups of {domain}" for domain, count in found.groups.items())
    say(
        f"{where}; {found.repeats} repeat{'s' if found.repeats > 1 else ''}: a difference in {metric} of "
        f"{found.effect:{digits}} or more is found with probability {found.power:.0%} ({found.level:.0%} intervals, "
        f"standard error {found.standard_error:{digits}})."
    )
    if found.repeat_share is not None:
        say(f"{found.repeat_share:.0%} of the variance is the repeats' own noise, which more repeats would reduce.")


def _planned(text: str) -> tuple[str, int]:
    domain, _, count = text.partition("=")
    if not count.isdecimal():
        raise ConfigError(f"expected --groups as domain=count, such as electricity=50, found {text!r}")
    return domain, int(count)


def _effect_table(found: Comparison) -> Table:
    rows = [
        (
            metric,
            Text(_interval(found.effect[metric], metric), style="bold" if found.effect[metric].excludes_zero else ""),
        )
        for metric in ("S", "R", "loss", "credits")
    ]
    return _table(("", "A - B"), rows)


def _parts_table(title: str, parts: Sequence[Part]) -> Table:
    rows = [
        (part.name, f"{part.cases:,}", f"{part.share:.1%}", f"{part.mean:+.4f}", _interval(part.contribution))
        for part in parts
    ]
    return _table((title, "cases", "weight", "mean", "contribution to S"), rows)


def _outcome_table(runs: Sequence[Run]) -> Table:
    outcomes = [Counter(row.outcome for row in run.rows) for run in runs]
    faults = [Counter(row.fault for row in run.rows if row.fault is not None) for run in runs]
    rows = [(name.replace("_", " "), *(f"{counts[name]:,}" for counts in outcomes)) for name in OUTCOMES]
    named = sorted({name for counts in faults for name in counts})
    rows += [(f"fault: {name.replace('_', ' ')}", *(f"{counts[name]:,}" for counts in faults)) for name in named]
    return _table(("episodes by outcome", "A", "B"), rows)


def _tools_table(tools: tuple[ToolUse, ToolUse]) -> Table:
    names = list(dict.fromkeys(name for use in tools for name in use.calls))
    models = list(dict.fromkeys(name for use in tools for name in use.models))
    rows = [(name[:40] or "(unreadable)", *(f"{use.calls.get(name, 0.0):.2f}" for use in tools)) for name in names]
    rows += [(f"bought: {name}", *(f"{use.models.get(name, 0.0):.2f}" for use in tools)) for name in models]
    rows.append(("calls refused or failed", *(f"{use.errors:.1%}" for use in tools)))
    rows.append(("episodes with a purchase", *(f"{use.bought:.1%}" for use in tools)))
    return _table(("calls an episode", "A", "B"), rows)


def _weights_table(table: pd.DataFrame) -> Table:
    rows = []
    for line in table.to_dict("records"):
        interval = Interval(line["difference"], line["low"], line["high"])
        shown = "" if line["policy"] == line["best"] else _interval(interval)
        rows.append((str(line["objective"]), str(line["policy"]), f"{line['S']:.4f}", shown))
    return _table(("weights", "policy", "S", "S - best"), rows)


def _repeats_table(found: Sequence[Repeatability]) -> Table:
    ks = sorted(set(found[0].passes) & set(found[1].passes))
    rows = [
        ("two repeats differ in validity", *(f"{item.valid_flips:.1%}" for item in found)),
        ("cases both valid and invalid", *(f"{item.cases_flipped:.1%}" for item in found)),
        ("two repeats differ in the plan", *(f"{item.plan_flips:.1%}" for item in found)),
        ("spread of S between repeats", *(f"{item.S_noise:.4f}" for item in found)),
        *((f"pass^{k} of validity", *(f"{item.passes[k]:.1%}" for item in found)) for k in ks),
    ]
    return _table(("repeats", "A", "B"), rows)


def _contrast_table(lines: Sequence[Contrast]) -> Table:
    rows = []
    for line in lines:
        both = "" if line.on_both_valid is None else _interval(line.on_both_valid, digits=3)
        shown = Text(_interval(line.difference, digits=3), style="bold" if line.difference.excludes_zero else "")
        rows.append((line.name, f"{line.valid:,}", f"{line.S:.3f}", shown, both))
    return _table(("configuration", "valid", "S", "S with - without", "where both valid"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def _interval(interval: Interval, metric: str = "S", digits: int = 4) -> str:
    shown = "+,.0f" if metric == "credits" else f"+.{digits}f"
    return f"{interval.estimate:{shown}} [{interval.low:{shown}}, {interval.high:{shown}}]"
