"""What the command line prints."""

from rich.console import Console


def say(text: str) -> None:
    """Print a line as it is: brackets in a file's name are no markup, and long paths are not broken."""
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
