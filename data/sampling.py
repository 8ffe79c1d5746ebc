"""Samples that take their ids evenly from strata, the same everywhere."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest

from castgym.data.files import sha256_hex


def spread_ids(strata: Iterable[Sequence[str]], limit: int | None = None) -> list[str]:
    """Ids in turns from each stratum: the same number from each, as far as they reach.

    Within a stratum the order is that of the ids' hashes: the same everywhere, and free of the index's own order, in
    which neighbours are alike.

    Args:
        strata: ids of each stratum.
        limit: how many to take; all with `None`.

    >>> spread_ids([["a", "b", "c"], ["z"]], 3)
    ['b', 'z', 'a']
    """
    queues = [sorted(ids, key=lambda name: sha256_hex(name.encode())) for ids in strata]
    turns = chain.from_iterable(zip_longest(*queues))
    return list(islice((name for name in turns if name is not None), limit))
