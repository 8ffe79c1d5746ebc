"""`castgym evaluate`: run policies over a case set into resumable run folders."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.progress import Progress, TaskID

from castgym.agents.base import Desk, Policy
from castgym.agents.registry import make_policies
from castgym.agents.sampling import SamplingSettings
from castgym.cli.console import say
from castgym.cli.evaluate_windows import evaluate_windows
from castgym.cli.forecasts import FORECAST_THREADS, affordable, warm_forecasts
from castgym.cli.models import make_agent
from castgym.cli.run_each import run_each
from castgym.data.errors import ConfigError
from castgym.data.sampling import spread_ids
from castgym.data.schema import Case, CaseSet, Split
from castgym.envs.casesets import EMBEDDED, LoadedCases, load_cases
from castgym.envs.episode import POOLS, pool_models
from castgym.envs.prompt_styles import PromptStyle
from castgym.envs.prompts import AnswerForm, PromptMode
from castgym.envs.scoring import COMBINED, OBJECTIVES, find_objective
from castgym.evaluation.forecast_runner import ForecastSettings
from castgym.evaluation.runner import EvaluationSettings
from castgym.evaluation.runner import evaluate as run_policy
from castgym.tools.forecasters.base import BackendError
from castgym.tools.forecasters.pool import shared_pool


def evaluate(
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="A name, `all`, or module:name; repeat.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model as policy: a folder, or with --base-url its name at the endpoint.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint of --model.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="LoRA adapter of a local --model.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of --model; 0 is greedy.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Of --model.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Of --model; 0 for none.")] = 20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens of a response of --model.")] = 16_384,
    thinking: Annotated[
        bool | None, typer.Option("--thinking/--no-thinking", help="Switch of the chat template of --model.")
    ] = None,
    cases: Annotated[str, typer.Option(help="`embedded` or a case set folder.")] = EMBEDDED,
    windows: Annotated[
        str | None,
        typer.Option(help="Forecasting windows instead of cases: `embedded`, or a folder of `castgym data windows`."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run folders.")] = None,
    files: Annotated[Path | None, typer.Option(help="With --windows: folder of the official files.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="With --windows: data set to keep; repeat.")] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="With --windows: rows between origins; the horizon by default.")
    ] = None,
    forecaster: Annotated[
        list[str] | None, typer.Option(help="With --windows: forecaster that episodes offer; repeat.")
    ] = None,
    backtests: Annotated[
        int, typer.Option(min=0, help="With --windows: past horizons on which episodes measure forecasters.")
    ] = 3,
    split: Annotated[str, typer.Option(help="Split to run.")] = "test",
    cohort: Annotated[list[str] | None, typer.Option(help="Cohort to keep; repeat.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Lead to keep: day_ahead or week_ahead.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Keep so many, evenly from cohorts and leads.")] = None,
    pool: Annotated[str, typer.Option(help="full, or no_tsfm without foundation models.")] = POOLS[0],
    prompt_mode: Annotated[str, typer.Option(help="memory or chat.")] = "memory",
    prompt_style: Annotated[str, typer.Option(help="full, or compact for small models.")] = "full",
    answer_form: Annotated[
        str, typer.Option(help="decisions (official), or plan: never ranked with it.")
    ] = "decisions",
    objective: Annotated[
        str, typer.Option(help="What prompts ask to minimise: " + ", ".join(OBJECTIVES) + ".")
    ] = COMBINED.name,
    repeats: Annotated[int, typer.Option(min=1, help="Episodes a case.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Part of the run's configuration; only policies that draw at random use it.")
    ] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Episodes side by side; helps where policies wait.")] = 1,
    vectorised: Annotated[bool, typer.Option("--vectorised", help="Same rows without playing episodes.")] = False,
    keep_episodes: Annotated[bool, typer.Option("--keep-episodes", help="Also keep prompts and responses.")] = False,
) -> None:
    """Run policies over cases or windows. The same command continues an interrupted run."""
    sampling = SamplingSettings(
        temperature=temperature, top_p=top_p, top_k=top_k or None, max_tokens=max_tokens, thinking=thinking
    )
    agents = [] if model is None else [make_agent(model, base_url, adapter, sampling)]
    if not policy and not agents:
        raise ConfigError("nothing to run: give --policy, --model, or both")
    if windows is not None:
        _refuse_with_windows(cases=cases != EMBEDDED, cohort=cohort, family=family, vectorised=vectorised)
        evaluate_windows(
            policy or (),
            agents,
            windows,
            files=files,
            datasets=dataset,
            split=split,  # type: ignore[arg-type]  # the source checks it
            stride=stride,
            limit=limit,
            models=forecaster,
            backtests=backtests,
            prompt_mode=prompt_mode,
            settings=ForecastSettings(repeats, seed, keep_episodes),
            out=out,
        )
        return
    for name, value, allowed in (("split", split, get_args(Split)), ("pool", pool, POOLS)):
        if value not in allowed:
            raise ConfigError(f"expected --{name} to be one of {', '.join(allowed)}, found {value!r}")
    for name, value, allowed in (
        ("prompt-mode", prompt_mode, get_args(PromptMode)),
        ("prompt-style", prompt_style, get_args(PromptStyle)),
        ("answer-form", answer_form, get_args(AnswerForm)),
    ):
        if value not in allowed:
            raise ConfigError(f"expected --{name} to be one of {', '.join(allowed)}, found {value!r}")
    if vectorised and agents:
        raise ConfigError("--vectorised decides by fixed rules: a model has to play its episodes")
    settings = EvaluationSettings(
        pool=pool,
        prompt_mode=prompt_mode,  # type: ignore[arg-type]  # checked above, as the next two
        prompt_style=prompt_style,  # type: ignore[arg-type]
        answer_form=answer_form,  # type: ignore[arg-type]
        objective=find_objective(objective).name,
        repeats=repeats,
        seed=seed,
        workers=workers,
        vectorised=vectorised,
        keep_episodes=keep_episodes,
    )
    loaded = load_cases(cases)
    chosen, selection = select_cases(loaded.case_set, split, cohort, family, limit)
    folder = out or Path("runs") / loaded.case_set.name
    finished = evaluate_policies(policy or (), loaded, chosen, selection, settings, folder, agents)
    say(f"{len(finished)} runs in {folder}. Next: castgym report {folder}/*")


def _refuse_with_windows(**given: Any) -> None:
    """Options of the decision benchmark mean nothing to windows."""
    if wrong := [name for name, value in given.items() if value]:
        raise ConfigError(f"--windows cannot be combined with {', '.join(f'--{name}' for name in wrong)}")


def select_cases(
    case_set: CaseSet,
    split: str,
    cohorts: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    limit: int | None = None,
) -> tuple[CaseSet, dict[str, Any]]:
    """Choose cases, and say how.

    Raises:
        ConfigError: nothing is left, or a cohort or family is unknown.
    """
    _check_known("cohort", cohorts, {case.cohort for case in case_set}, case_set.name)
    _check_known("family", families, {case.family for case in case_set}, case_set.name)

    def wanted(case: Case) -> bool:
        return (
            case.split == split
            and (not cohorts or case.cohort in cohorts)
            and (not families or case.family in families)
        )

    chosen = case_set.where(wanted)
    if limit is not None and limit < len(chosen):
        kept = spread_sample(chosen.cases, limit)
        chosen = chosen.where(lambda case: case.case_id in kept)
    selection = {"split": split, "cohorts": cohorts or None, "families": families or None, "limit": limit}
    return chosen, selection


def spread_sample(cases: Sequence[Case], limit: int) -> set[str]:
    """Ids of a sample that takes the same number from each cohort and lead, as far as they reach (see `spread_ids`)."""
    strata: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        strata.setdefault((case.cohort, case.family), []).append(case.case_id)
    return set(spread_ids(strata.values(), limit))


def _forecast_ahead(policies: Sequence[Policy], chosen: CaseSet, desk: Desk, progress: Progress) -> None:
    """Compute in batches what episodes would compute one by one; a cache on disk keeps it for them.

    A forecaster that fails here fails again in the episodes, which know what to do about it.
    """
    for model in dict.fromkeys(name for policy in policies for name in policy.requires):
        needed = affordable(chosen.cases, model, desk.tariff)
        if not needed or not desk.pool.on_disk(model):
            continue
        task = progress.add_task(f"forecasts: {model}", total=len(needed))

        def count(cached: int, computed: int, task: TaskID = task) -> None:
            progress.advance(task, cached + computed)

        with suppress(BackendError):
            warm_forecasts(desk.pool, model, needed, desk.workers, count)


def _check_known(what: str, given: Sequence[str] | None, known: Collection[str], name: str) -> None:
    unknown = sorted(set(given or ()) - set(known))
    if unknown:
        raise ConfigError(f"no {what} {', '.join(unknown)} in {name}; it has {', '.join(sorted(known))}")


def evaluate_policies(
    names: Sequence[str],
    loaded: LoadedCases,
    chosen: CaseSet,
    selection: dict[str, Any],
    settings: EvaluationSettings,
    folder: Path,
    agents: Sequence[Policy] = (),
) -> list[Path]:
    """Run each policy, and each further agent, into a folder of its own, with a progress bar.

    Returns:
        The run folders.
    """
    models = pool_models(loaded.case_set.models, settings.pool)
    desk = Desk(loaded.case_set.tariff, models, shared_pool(), FORECAST_THREADS)
    policies = [*(make_policies(names, loaded, desk) if names else ()), *agents]

    def ahead(progress: Progress) -> None:
        if not settings.vectorised:
            _forecast_ahead(policies, chosen, desk, progress)

    def run(policy: Policy, path: Path, progress: Callable[[int, int], None]) -> None:
        run_policy(policy, loaded, chosen, selection, settings, desk, path, progress)

    return run_each(policies, len(chosen) * settings.repeats, folder, run, ahead)
