"""Sizes of a prompt's parts, and the error of one that is too long: no part is ever cut."""

from collections.abc import Callable, Mapping

from castgym.data.errors import ConfigError

TOTAL = "total"


class PromptTooLongError(ConfigError):
    """A prompt exceeds the limit; the message names the size of each part.

    Attributes:
        sizes: size of each part, and their sum under `total`.
        limit: largest size.
    """

    def __init__(self, sizes: Mapping[str, int], limit: int, unit: str) -> None:
        parts = ", ".join(f"{name} {size}" for name, size in sizes.items() if name != TOTAL)
        super().__init__(
            f"the prompt has {sizes[TOTAL]} {unit}, more than the limit of {limit}: {parts}. Raise max_prompt_size, or "
            "shorten a part (recent_steps, summary_budget, fewer models or diagnostics, prompt_style='compact')"
        )
        self.sizes = dict(sizes)
        self.limit = limit


def measured_parts(
    parts: Mapping[str, str], limit: int | None, count_tokens: Callable[[str], int] | None
) -> dict[str, int]:
    """Size of each part and their sum.

    Args:
        parts: text by name.
        limit: largest sum.
        count_tokens: counts the tokens of a text; characters are counted without it. The sum of the parts' tokens
            leaves out what a chat template adds.

    Raises:
        PromptTooLongError: the sum exceeds the limit.
    """
    sizes = {name: len(text) if count_tokens is None else count_tokens(text) for name, text in parts.items() if text}
    sizes[TOTAL] = sum(sizes.values())
    if limit is not None and sizes[TOTAL] > limit:
        raise PromptTooLongError(sizes, limit, "characters" if count_tokens is None else "tokens")
    return sizes
