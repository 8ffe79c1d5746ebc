"""`castgym collect`: a teacher's episodes on training data; the script `training/collect.py` is the same command."""

from castgym.training.collect import collect

__all__ = ["collect"]
