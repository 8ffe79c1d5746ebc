"""The rule that training data never comes from anywhere but the training split."""

from typing import Final

from castgym.data.errors import ConfigError

TRAINING_SPLIT: Final = "train"
"""The only split that episodes are ever collected from and selected of."""


def refuse_other_splits(split: object) -> None:
    """Let only training data pass.

    Raises:
        ConfigError: it is of another split.
    """
    if split != TRAINING_SPLIT:
        raise ConfigError(
            f"episodes for training come from the {TRAINING_SPLIT} split only, found {split!r}: a teacher's episodes "
            "on test data would put the truth into the student"
        )
