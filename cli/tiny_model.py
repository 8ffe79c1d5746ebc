"""`castgym tiny-model`: a small policy of Qwen3's architecture, for machines without a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from castgym.cli.console import Out, Overwrite, say
from castgym.data.errors import ConfigError


def tiny_model(
    out: Out,
    transcripts: Annotated[
        list[Path] | None,
        typer.Argument(help="Trajectories (JSON lines) that the tokenizer learns from; without any, embedded cases."),
    ] = None,
    hidden: Annotated[int, typer.Option(help="Width, a multiple of 64.")] = 128,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 4,
    vocabulary: Annotated[int, typer.Option(help="Tokens of the tokenizer.")] = 2048,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Build a tiny Qwen3 with random weights and a tokenizer trained on transcripts, in the format of any model."""
    # Imported late: torch and transformers take seconds, and are no part of the core.
    try:
        from transformers.utils import logging

        from castgym.training.step_rows import read_trajectories
        from castgym.training.tiny_model import TinySize, build_tiny_model, sample_trajectories, transcript_texts
    except ImportError as error:
        raise ConfigError(
            f"building a model needs torch, transformers and trl ({error}): pip install 'castgym[train]'"
        ) from error

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    size = TinySize(hidden, layers, vocabulary)
    trajectories = read_trajectories(transcripts) if transcripts else sample_trajectories()
    parameters = build_tiny_model(out, transcript_texts(trajectories), size, seed=seed, overwrite=overwrite)
    say(f"{out}: {parameters:,} parameters, {layers} layers of width {hidden}")
