"""A Gymnasium space for the text that language models read and write."""

import multiprocessing
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NoReturn, overload

import numpy as np
from gymnasium.spaces import Space, Text, Tuple
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

_FILLER = " "
_SURROGATES = 0x800  # code points U+D800..U+DFFF, which are no characters
_FIRST_SURROGATE = 0xD800
_CHARACTERS = 0x110000 - _SURROGATES
_LONGEST_SAMPLE_TAIL = 256
_LENGTH_BYTES = 8
_LARGEST_CHARACTER = 4  # bytes of a character in UTF-8, at most


class Utf8Text(Text):
    """All texts of a bounded number of characters that UTF-8 can encode.

    Gymnasium's `Text` holds an explicit set of characters, letters and digits by default; a set of all of Unicode costs
    seconds to build. This space has none: a text belongs to it if its length fits and it has no lone surrogates.

    It works in `Dict` and `Tuple` spaces and in vector environments, where a batch is a tuple of `str`. It has a shared
    memory of its own for `AsyncVectorEnv`, because that of Gymnasium's `Text` returns wrong text; a slot takes 4 bytes
    a character of `max_length`. Flattening to a `Box` needs a character set and is refused with a clear error.
    `characters` and its kin know only the blank that fills empty batches.

    Args:
        max_length: largest number of characters (code points), inclusive.
        min_length: smallest number, inclusive.
        seed: seed or generator of `sample`.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=min_length, charset=_FILLER, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a text: uniform characters of all of Unicode, uniform length.

        The length exceeds `min_length` by 256 at most, however large `max_length` is: a sample exercises an
        environment's handling of text, and does not need its size.

        Args:
            mask: not supported, because there is no character set to mask.
            probability: not supported, likewise.

        Raises:
            ValueError: a mask or a probability was passed.
        """
        if mask is not None or probability is not None:
            raise ValueError(f"{self!r} has no character set: sample it without mask and probability")
        longest = min(self.max_length, self.min_length + _LONGEST_SAMPLE_TAIL)
        length = int(self.np_random.integers(self.min_length, longest + 1))
        points = self.np_random.integers(0, _CHARACTERS, size=length, dtype=np.uint32)
        points[points >= _FIRST_SURROGATE] += np.uint32(_SURROGATES)
        return points.astype("<u4").tobytes().decode("utf-32-le")

    def contains(self, x: Any) -> bool:
        """Whether `x` is a `str` whose length fits and that UTF-8 can encode."""
        if not isinstance(x, str) or not self.min_length <= len(x) <= self.max_length:
            return False
        try:
            x.encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True

    @property
    def is_np_flattenable(self) -> bool:
        """False: there is no character set to index."""
        return False

    def __repr__(self) -> str:
        """The call that makes an equal space."""
        return f"Utf8Text({self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object, /) -> bool:
        """Whether `other` is a `Utf8Text` of the same bounds; never equal to a `Text` with a character set."""
        return (
            isinstance(other, Utf8Text) and self.min_length == other.min_length and self.max_length == other.max_length
        )


@is_space_dtype_shape_equiv.register(Utf8Text)
def _same_bounds(space: Utf8Text, other: object) -> bool:
    return space == other


@create_shared_memory.register(Utf8Text)
def _create_shared(space: Utf8Text, n: int = 1, ctx: Any = multiprocessing) -> Any:
    """One slot an environment: the number of bytes of the text, then the text in UTF-8."""
    return ctx.RawArray("B", n * _slot(space))


@write_to_shared_memory.register(Utf8Text)
def _write_shared(space: Utf8Text, index: int, value: str, shared_memory: Any) -> None:
    content = value.encode("utf-8")
    if not space.contains(value):
        raise ValueError(f"a text of {len(value)} characters does not belong to {space!r}")
    start = index * _slot(space)
    view = memoryview(shared_memory).cast("B")
    view[start : start + _LENGTH_BYTES] = len(content).to_bytes(_LENGTH_BYTES, "little")
    view[start + _LENGTH_BYTES : start + _LENGTH_BYTES + len(content)] = content


@read_from_shared_memory.register(Utf8Text)
def _read_shared(space: Utf8Text, shared_memory: Any, n: int = 1) -> "SharedTexts":
    return SharedTexts(space, shared_memory, n)


class SharedTexts(Sequence[str]):
    """The texts in a shared memory as they are now; a deep copy is a plain tuple of what they are at that moment.

    `AsyncVectorEnv` reads its shared memory once, when it is made, and deep-copies what it read at each step. Arrays
    are views, so that this works; text must be a view too.
    """

    def __init__(self, space: Utf8Text, memory: Any, count: int) -> None:
        self._slot = _slot(space)
        self._memory = memory
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        start = range(0, self._count * self._slot, self._slot)[index]
        view = memoryview(self._memory).cast("B")
        length = int.from_bytes(view[start : start + _LENGTH_BYTES], "little")
        return bytes(view[start + _LENGTH_BYTES : start + _LENGTH_BYTES + length]).decode("utf-8")

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


def _slot(space: Utf8Text) -> int:
    return _LENGTH_BYTES + _LARGEST_CHARACTER * space.max_length


@flatdim.register(Utf8Text)
@flatten_space.register(Utf8Text)
def _refuse_flattening(space: Utf8Text, *_: Any, **__: Any) -> NoReturn:
    raise ValueError(f"{space!r} cannot be flattened, it has no character set: tokenise the text instead")


def _batch(spaces: Sequence[Utf8Text]) -> Space[Any]:
    return Tuple([deepcopy(space) for space in spaces])


# Called, not used as decorators: the declared types of these three know no single class.
batch_differing_spaces.register(Utf8Text, _batch)
flatten.register(Utf8Text, _refuse_flattening)
unflatten.register(Utf8Text, _refuse_flattening)
