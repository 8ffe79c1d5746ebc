"""Pictures of a forecasting episode for people: text for a terminal, a plot as an array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from castgym.data.schema import FloatArray
from castgym.envs.forecast_episode import ForecastEpisode
from castgym.envs.sources import EpisodeScore


def render_text(episode: ForecastEpisode, score: EpisodeScore | None) -> str:
    """Window, calls, stored forecasts and, after the end, the outcome and its score.

    Args:
        episode: the episode.
        score: its score, once it has ended.
    """
    window, memory = episode.window, episode.memory
    lines = [
        f"{window.window_id}  {window.channels[0]} ({window.unit})  L={window.length} H={window.horizon}",
        f"response {episode.turns}/{episode.config.max_steps}  stage {episode.stage}",
    ]
    for call in memory.calls:
        arguments = " ".join(str(value)[:40] for value in call.arguments.values())
        ending = f"error: {call.error}" if call.error else "ok"
        lines.append(f"{call.step:3d}. {call.tool[:40] or '(no readable call)'} {arguments}  {ending}")
    for name, values in episode.stored_forecasts().items():
        lines.append(f"  {name}: {values[0]:.5g} ... {values[-1]:.5g}, mean {values.mean():.5g}")
    if score is not None:
        lines.append(f"{episode.end.outcome}: reward {score.reward:.4f}  MSE {score.error:.5g}")
        if score.parts["fault"]:
            lines[-1] += f"  fault {score.parts['fault']}"
    return "\n".join(lines)


def render_array(episode: ForecastEpisode, actual: FloatArray | None) -> NDArray[np.uint8]:
    """History, stored forecasts, the answer and, after the end, the truth: shape (height, width, 3).

    Args:
        episode: the episode.
        actual: truth over the horizon, shape (H,); `None` while the episode goes on.
    """
    # Here and not above: plotting takes a second to import, and most environments are never drawn.
    from matplotlib.figure import Figure

    from castgym.envs.plots import figure_array

    window = episode.window
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes: Any = figure.subplots()
    axes.plot(np.arange(-window.length, 0), window.history[:, 0], color="black", label=window.channels[0])
    steps = np.arange(window.horizon)
    for name, values in episode.stored_forecasts().items():
        axes.plot(steps, values, label=name, alpha=0.7)
    if episode.end.submission is not None:
        answer = episode.end.submission["values"]
        axes.plot(np.arange(len(answer)), answer, label="answer", linestyle="--")
    if actual is not None:
        axes.plot(steps, actual, color="grey", label="truth")
    axes.axvline(-0.5, color="lightgrey")
    axes.set_xlabel("steps after the forecast origin")
    axes.set_ylabel(window.unit)
    axes.set_title(window.window_id)
    axes.legend(loc="upper left", fontsize="small")
    return figure_array(figure)
