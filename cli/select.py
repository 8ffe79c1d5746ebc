"""`castgym select`: the episodes that a student imitates; the script `training/selection.py` is the same command."""

from castgym.training.selection import select

__all__ = ["select"]
