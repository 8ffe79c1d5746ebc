"""TRL's `SFTTrainer` for step rows: the paper's average over responses, and micro-batches of similar length.

Two hooks are overridden: which rows come together, and by what a step's summed loss is divided.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import Sampler
from trl.trainer.sft_trainer import SFTTrainer

from castgym.training.step_rows import StepRow


class StepRowTrainer(SFTTrainer):
    """Fine-tunes on step rows.

    The paper's loss is the sum of a response's token losses, averaged over the N_resp responses (Cast-R1, D.2.2). TRL
    divides the summed token losses of a step by their number, which gives a token more weight where it stands among
    short responses. Here the divisor is the number of responses times the mean response length of the whole data set:
    the paper's loss but for a constant factor, which AdamW does not see and which keeps the loss on the scale of
    one token.

    Args:
        rows: training rows.
        fields: what `SFTTrainer` takes, without the data sets.
    """

    def __init__(self, rows: Sequence[StepRow], **fields: Any) -> None:
        self._lengths = [len(row) for row in rows]
        self.mean_response = sum(len(row.response_ids) for row in rows) / len(rows)
        super().__init__(train_dataset=row_dataset(rows), **fields)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """The micro-batches of an optimiser step, and the divisor of their summed token losses on all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        responses = torch.tensor(sum(len(batch["labels"]) for batch in batches), device=device)
        if self.accelerator.num_processes > 1:
            responses = self.accelerator.gather(responses).sum()
        return batches, responses * self.mean_response

    def row_order(self) -> "LengthSortedSteps":
        """The order of the rows."""
        args = self.args
        together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return LengthSortedSteps(self._lengths, together, args.seed)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int]:
        del train_dataset
        return self.row_order()


class LengthSortedSteps(Sampler[int]):
    """A random order whose steps are sorted by length, so that a micro-batch holds rows of similar length.

    Every optimiser step is a uniform random draw, as without sorting; only which of its rows are padded together
    changes. The order depends on seed and epoch alone, so a resumed run finds it again.

    Args:
        lengths: tokens of each row.
        together: rows of an optimiser step, over all processes and micro-batches.
        seed: of the order.
    """

    def __init__(self, lengths: Sequence[int], together: int, seed: int) -> None:
        self._lengths = np.asarray(lengths)
        self._together = together
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng([self._seed, self._epoch]).permutation(len(self._lengths))
        for start in range(0, len(order), self._together):
            rows = order[start : start + self._together]
            yield from rows[np.argsort(-self._lengths[rows], kind="stable")].tolist()


def row_dataset(rows: Sequence[StepRow]) -> Dataset:
    """Rows as the table that `SFTTrainer` takes as it is: `input_ids`, and `labels` that cover the response alone."""
    return Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})


def padded_share(lengths: Sequence[int], order: Sequence[int], micro_batch: int) -> float:
    """Share of the tokens in a run of micro-batches that is padding.

    Args:
        lengths: tokens of each row.
        order: rows in the order of training.
        micro_batch: rows that are padded together.
    """
    groups = [order[start : start + micro_batch] for start in range(0, len(order), micro_batch)]
    padded = sum(max(lengths[row] for row in group) * len(group) for group in groups)
    return 1.0 - sum(lengths[row] for row in order) / padded
