"""Pictures of an episode for people: text for a terminal, a plot as an array."""

import numpy as np
from numpy.typing import NDArray

from castgym.envs.episode import Episode
from castgym.envs.scoring import Score
from castgym.tools.planning.contract import CapacityContract

FloatArray = NDArray[np.float64]


def render_text(episode: Episode, score: Score | None) -> str:
    """Case, calls, plans and, after the end, the outcome and its score.

    Args:
        episode: the episode.
        score: its score, once it has ended.
    """
    case, memory = episode.case, episode.memory
    lines = [
        f"{case.case_id}  {case.unit}  as of {case.as_of:%Y-%m-%d %H:%M}Z  target {case.target_start:%Y-%m-%d %H:%M}Z",
        f"calls {len(memory.calls)}/{episode.config.max_calls}  credits {episode.spent}/{episode.config.tariff.budget}",
    ]
    for number, call in enumerate(memory.calls, start=1):
        ending = f"error: {call.error}" if call.error else (call.plan_id or "ok")
        lines.append(f"{number:3d}. {call.tool or '(unreadable call)'}  {ending}  {call.credits} credits")
    grid = CapacityContract.of(case).capacity_grid
    for plan in memory.plans:
        capacities = " ".join(f"{grid[index]:.5g}" for index in plan.grid_index)
        lines.append(f"  {plan.plan_id} {plan.source}  expected loss {plan.expected_loss:.4f}  {capacities}")
    if score is not None:
        committed = " ".join(f"{grid[index]:.5g}" for index in score.grid_index) if score.grid_index else "none"
        lines.append(f"{episode.end.outcome}: committed {committed}")
        lines.append(
            f"loss {score.loss:.4f}  floor {score.floor:.4f}  S {score.S:.4f}"
            + (f"  fault {score.fault}" if score.fault else "")
        )
    return "\n".join(lines)


def render_array(episode: Episode, score: Score | None, actual: FloatArray | None) -> NDArray[np.uint8]:
    """History, plans considered, the commitment and, after the end, truth and oracle: shape (height, width, 3).

    Args:
        episode: the episode.
        score: its score, once it has ended.
        actual: true demand, shape (24,); `None` while the episode goes on.
    """
    # Here and not above: plotting takes a second to import, and most environments are never drawn.
    from castgym.envs.plots import figure_array, plot_plans

    contract = CapacityContract.of(episode.case)
    figure = plot_plans(
        episode.case,
        {
            f"{plan.plan_id} {plan.source.partition(':')[2] or plan.source}": plan.grid_index
            for plan in episode.memory.plans
        },
        committed=score.grid_index if score is not None else None,
        actual=actual,
        oracle=None if actual is None else contract.optimize(contract.demand_cost(actual)).tolist(),
    )
    return figure_array(figure)
