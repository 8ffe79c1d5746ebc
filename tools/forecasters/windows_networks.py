"""Three small networks for windows: DLinear, PatchTST and iTransformer. Inputs are standardised, without gaps.

Each maps history (N, L, C) and the series known over the horizon (N, H, K) to the target over the horizon (N, H).
Only iTransformer looks beyond the target's own history; the other two take no covariates, as in their papers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from castgym.data.errors import ConfigError

Settings = Mapping[str, Any]

SETTINGS: Mapping[str, Settings] = MappingProxyType(
    {
        "dlinear": MappingProxyType({"kernel": 25}),
        "patchtst": MappingProxyType(
            {"patch": 24, "stride": 24, "width": 64, "heads": 4, "layers": 2, "feedforward": 128, "dropout": 0.2}
        ),
        "itransformer": MappingProxyType(
            {"width": 128, "heads": 4, "layers": 2, "feedforward": 256, "dropout": 0.1},
        ),
    }
)
"""Shapes, small enough for a CPU."""

_SMALLEST_VARIANCE = 1e-5


class DLinear(nn.Module):
    """A linear map of the trend and one of the rest (Zeng et al., 2023).

    Args:
        length: steps of history, L.
        horizon: steps to forecast, H.
        kernel: odd width of the moving average that makes the trend; edges are repeated.
    """

    def __init__(self, length: int, horizon: int, kernel: int) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ConfigError(f"dlinear: expected an odd kernel, found {kernel}")
        self.kernel = kernel
        self.trend = nn.Linear(length, horizon)
        self.rest = nn.Linear(length, horizon)

    def forward(self, history: Tensor, known: Tensor) -> Tensor:
        """Forecast, shape (N, H)."""
        del known
        target = history[:, :, 0]
        side = self.kernel // 2
        padded = torch.cat([target[:, :1].expand(-1, side), target, target[:, -1:].expand(-1, side)], dim=1)
        trend = padded.unfold(1, self.kernel, 1).mean(dim=-1)
        forecast: Tensor = self.trend(trend) + self.rest(target - trend)
        return forecast


class PatchTST(nn.Module):
    """PatchTST of `transformers` on the target, each window scaled to its own mean and deviation (Nie et al., 2023).

    Args:
        length: steps of history, L.
        horizon: steps to forecast, H.
        patch: steps of a patch.
        stride: steps between patches.
        width: of the model.
        heads: of the attention.
        layers: of the encoder.
        feedforward: width of its inner layer.
        dropout: in the feed-forward layers and the embedding.
    """

    def __init__(
        self,
        length: int,
        horizon: int,
        patch: int,
        stride: int,
        width: int,
        heads: int,
        layers: int,
        feedforward: int,
        dropout: float,
    ) -> None:
        super().__init__()
        from transformers import PatchTSTConfig, PatchTSTForPrediction

        config = PatchTSTConfig(
            num_input_channels=1,
            context_length=length,
            prediction_length=horizon,
            patch_length=min(patch, length),
            patch_stride=min(stride, length),
            d_model=width,
            num_attention_heads=heads,
            num_hidden_layers=layers,
            ffn_dim=feedforward,
            positional_dropout=dropout,
            ff_dropout=dropout,
            scaling="std",
            loss="mse",
        )
        self.inner: Any = PatchTSTForPrediction(config)

    def forward(self, history: Tensor, known: Tensor) -> Tensor:
        """Forecast, shape (N, H)."""
        del known
        forecast: Tensor = self.inner(past_values=history[:, :, :1]).prediction_outputs[:, :, 0]
        return forecast


class ITransformer(nn.Module):
    """Attention over variates, one token a channel, each scaled to its own window (Liu et al., 2024).

    A series known over the horizon is one more token, embedded from its H values, which are scaled like its history.

    Args:
        length: steps of history, L.
        horizon: steps to forecast, H.
        known: positions of the known channels in the history.
        width: of the model.
        heads: of the attention.
        layers: of the encoder.
        feedforward: width of its inner layer.
        dropout: in the encoder.
    """

    def __init__(
        self,
        length: int,
        horizon: int,
        known: tuple[int, ...],
        width: int,
        heads: int,
        layers: int,
        feedforward: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.known = list(known)
        self.embed = nn.Linear(length, width)
        self.embed_known = nn.Linear(horizon, width) if known else None
        layer = nn.TransformerEncoderLayer(width, heads, feedforward, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.project = nn.Linear(width, horizon)

    def forward(self, history: Tensor, known: Tensor) -> Tensor:
        """Forecast, shape (N, H)."""
        mean = history.mean(dim=1, keepdim=True)
        deviation = (history.var(dim=1, keepdim=True, correction=0) + _SMALLEST_VARIANCE).sqrt()
        tokens = self.embed(((history - mean) / deviation).transpose(1, 2))
        if self.embed_known is not None:
            scaled = (known - mean[:, :, self.known]) / deviation[:, :, self.known]
            tokens = torch.cat([tokens, self.embed_known(scaled.transpose(1, 2))], dim=1)
        forecast: Tensor = self.project(self.encoder(tokens)[:, 0])
        return forecast * deviation[:, 0, :1] + mean[:, 0, :1]


def build_network(model: str, length: int, horizon: int, known: tuple[int, ...], settings: Settings) -> nn.Module:
    """A network with fresh weights.

    Args:
        model: `dlinear`, `patchtst` or `itransformer`.
        length: steps of history, L.
        horizon: steps to forecast, H.
        known: positions of the known channels in the history.
        settings: its shape, as in `SETTINGS`.

    Raises:
        ConfigError: there is no such network, or the settings are not its own.
    """
    if model not in SETTINGS or set(settings) != set(SETTINGS[model]):
        raise ConfigError(f"expected a network of {', '.join(SETTINGS)} with its settings, found {model!r}: {settings}")
    if model == "dlinear":
        return DLinear(length, horizon, **settings)
    if model == "patchtst":
        return PatchTST(length, horizon, **settings)
    return ITransformer(length, horizon, known, **settings)
