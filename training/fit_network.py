"""Train one network on the windows of one data set, with early stopping on its validation windows."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from castgym.training.window_arrays import Rows, WindowArrays

Progress = Callable[[int, int], None]
"""Told how many epochs are done, and how many there are at most."""


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How a network is trained: Adam on the squared error (Cast-R1, appendix B.2), the rate falling as a cosine.

    Attributes:
        epochs: at most.
        patience: epochs without a better validation error after which training stops.
        batch: windows of a step.
        seed: of weights, order and dropout.
    """

    epochs: int = 15
    patience: int = 3
    batch: int = 128
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained network.

    Attributes:
        network: with the weights of its best epoch.
        best_epoch: counted from 1.
        epochs: that were run.
        validation_mse: of the best epoch, standardised scale.
    """

    network: nn.Module
    best_epoch: int
    epochs: int
    validation_mse: float


def fit_network(
    build: Callable[[], nn.Module],
    arrays: WindowArrays,
    rate: float,
    settings: FitSettings,
    progress: Progress = lambda _done, _total: None,
) -> Fit:
    """Train a fresh network.

    The same seed gives the same weights on one machine. The state of torch's global generator is left as it was.

    Args:
        build: makes the network.
        arrays: training and validation windows.
        rate: first learning rate.
        settings: everything else.
        progress: told after each epoch.
    """
    order = np.random.default_rng(settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build()
        optimiser = torch.optim.Adam(network.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs)
        best, best_epoch, weights = float("inf"), 0, copy.deepcopy(network.state_dict())
        epoch = 0
        for epoch in range(1, settings.epochs + 1):
            _run_epoch(network, optimiser, arrays, order.permutation(arrays.training), settings.batch)
            schedule.step()
            error = validation_mse(network, arrays)
            progress(epoch, settings.epochs)
            if error < best:
                best, best_epoch, weights = error, epoch, copy.deepcopy(network.state_dict())
            elif epoch - best_epoch >= settings.patience:
                break
        network.load_state_dict(weights)
    return Fit(network.eval(), best_epoch, epoch, best)


def _run_epoch(network: nn.Module, optimiser: Any, arrays: WindowArrays, origins: Rows, batch: int) -> None:
    network.train()
    for start in range(0, len(origins), batch):
        history, known, target = (torch.from_numpy(part) for part in arrays.batch(origins[start : start + batch]))
        loss = nn.functional.mse_loss(network(history, known), target)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()


@torch.no_grad()
def validation_mse(network: nn.Module, arrays: WindowArrays, batch: int = 256) -> float:
    """Mean squared error over all validation windows, standardised scale."""
    network.eval()
    total = 0.0
    for start in range(0, len(arrays.validation), batch):
        history, known, target = (
            torch.from_numpy(part) for part in arrays.batch(arrays.validation[start : start + batch])
        )
        total += float((network(history, known) - target).square().sum())
    return total / (len(arrays.validation) * arrays.horizon)
