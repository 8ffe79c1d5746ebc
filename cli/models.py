"""Models as policies of `castgym evaluate`: behind an OpenAI-compatible endpoint, or from a local folder."""

from pathlib import Path

from castgym.agents.base import Policy
from castgym.agents.sampling import SamplingSettings
from castgym.data.errors import ConfigError


def make_agent(model: str, base_url: str | None, adapter: Path | None, sampling: SamplingSettings) -> Policy:
    """The agent of a model.

    Args:
        model: name at the endpoint, or a folder with a transformers model.
        base_url: address of an OpenAI-compatible endpoint; without it, `model` is a folder.
        adapter: folder of a LoRA adapter for a local model.
        sampling: decoding.

    Raises:
        ConfigError: neither an address nor a folder is given, or a package is missing.
    """
    try:
        if base_url is not None:
            if adapter is not None:
                raise ConfigError("--adapter belongs to a local model: leave --base-url out")
            from castgym.agents.chat import ChatAgent

            return ChatAgent(model, base_url, sampling=sampling)
        if not Path(model).is_dir():
            raise ConfigError(
                f"expected --model to be a folder with a transformers model, found {model!r}: for a model behind an "
                "endpoint give --base-url too"
            )
        from castgym.agents.local import LocalAgent

        return LocalAgent(model, adapter=adapter, sampling=sampling)
    except ImportError as error:
        raise ConfigError(
            f"models need further packages ({error}): pip install 'castgym[serve]' for endpoints, 'castgym[train]' for "
            "local models"
        ) from error
