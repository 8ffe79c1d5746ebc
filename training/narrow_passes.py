"""Forward passes without the columns that are padding in all of their rows.

TRL pads a whole generation to its longest prompt and longest response. Rows of step-by-step episodes differ much in
length, so most of that is padding. Rotary positions are relative: leaving padding out on the left changes nothing.
"""

from typing import Any

import torch
from torch.nn.functional import pad
from trl.trainer.grpo_trainer import GRPOTrainer


class NarrowPasses(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """A trainer that reads no more columns than a pass needs, and logs the share of padding in them."""

    args: Any
    train_dataset: Any
    num_generations: Any

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Any, Any, Any]:
        """TRL's; rows of like length share a pass, and each pass is as wide as its longest row."""
        order = torch.argsort(attention_mask.sum(1), stable=True)
        width, parts = input_ids.size(1), []
        for index in torch.split(order, batch_size or len(order)):
            mask = attention_mask[index]
            columns = mask.any(0).nonzero()
            left = min(int(columns[0]), width - logits_to_keep - 1)
            right = min(width - 1 - int(columns[-1]), logits_to_keep - 1)
            kept = slice(left, width - right)
            self._metrics["train"]["rollout/padding_waste"].append(1.0 - float(mask[:, kept].float().mean()))
            logps, entropies, loss = super()._get_per_token_logps_and_entropies(
                model, input_ids[index][:, kept], mask[:, kept], logits_to_keep - right, **options
            )
            parts.append((pad(logps, (0, right)), None if entropies is None else pad(entropies, (0, right)), loss))
        back = torch.argsort(order)
        all_logps, all_entropies, losses = zip(*parts, strict=True)
        return (
            torch.cat(all_logps)[back],
            None if all_entropies[0] is None else torch.cat(all_entropies)[back],
            None if losses[0] is None else torch.stack(losses).mean(),
        )
