"""Chronos and TimesFM through their real libraries and loaders, on tiny models with random weights."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline
from chronos.chronos2 import Chronos2Model
from chronos.chronos2.config import Chronos2CoreConfig
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from factories import demand
from timesfm import TimesFM_2p5_200M_torch
from timesfm.timesfm_2p5.timesfm_2p5_torch import TimesFM_2p5_200M_torch_module
from transformers import T5Config

from castgym.data.errors import ConfigError, ForecasterUnavailableError
from castgym.tools.forecasters import chronos_models, timesfm_model
from castgym.tools.forecasters.base import QUANTILE_LEVELS, Forecaster, checked_forecast
from castgym.tools.forecasters.chronos_models import Chronos
from castgym.tools.forecasters.pool import ForecasterPool, default_entries
from castgym.tools.forecasters.sources import ModelSource, models_folder
from castgym.tools.forecasters.timesfm_model import TimesFM25

LEVELS = list(QUANTILE_LEVELS)
CONTEXTS = np.stack([demand(seed, 336) for seed in range(11)])


def save_bolt(folder: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    config = T5Config(
        d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=2, num_decoder_layers=2, vocab_size=2, pad_token_id=0,
        decoder_start_token_id=0, initializer_factor=0.05, feed_forward_proj="relu",
        architectures=["ChronosBoltModelForForecasting"], chronos_pipeline_class="ChronosBoltPipeline",
        chronos_config={
            "context_length": 512, "prediction_length": 64, "input_patch_size": 16, "input_patch_stride": 16,
            "quantiles": LEVELS, "use_reg_token": True,
        },
    )  # fmt: skip
    ChronosBoltModelForForecasting(config).save_pretrained(folder)


def save_chronos2(folder: Path) -> None:
    torch.manual_seed(0)
    config = Chronos2CoreConfig(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, architectures=["Chronos2Model"],
        chronos_pipeline_class="Chronos2Pipeline",
        chronos_config={
            "context_length": 512, "output_patch_size": 16, "input_patch_size": 16, "input_patch_stride": 16,
            "quantiles": [0.01, 0.05, *LEVELS, 0.95, 0.99], "use_reg_token": True, "use_arcsinh": True,
            "max_output_patches": 13, "time_encoding_scale": 512,
        },
    )  # fmt: skip
    Chronos2Model(config).save_pretrained(folder)


def save_timesfm(folder: Path) -> None:
    """The tiny shape must be set on the library's module class while models are built and loaded."""
    torch.manual_seed(0)
    TimesFM_2p5_200M_torch(torch_compile=False).save_pretrained(folder, config={})


@pytest.fixture(scope="module")
def small_timesfm() -> object:
    """The library's own definition at a width of 32 and two layers."""
    real = TimesFM_2p5_200M_torch_module.config
    narrow = dataclasses.replace
    stack = real.stacked_transformers
    TimesFM_2p5_200M_torch_module.config = narrow(
        real,
        tokenizer=narrow(real.tokenizer, hidden_dims=32, output_dims=32),
        stacked_transformers=narrow(
            stack, num_layers=2, transformer=narrow(stack.transformer, model_dims=32, hidden_dims=32, num_heads=2)
        ),
        output_projection_point=narrow(real.output_projection_point, input_dims=32, hidden_dims=32),
        output_projection_quantiles=narrow(real.output_projection_quantiles, input_dims=32, hidden_dims=32),
    )
    yield
    TimesFM_2p5_200M_torch_module.config = real


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, small_timesfm: object) -> Path:
    """A folder as `$CASTGYM_MODELS` names one: by forecaster name and by hub id."""
    folder = tmp_path_factory.mktemp("models")
    save_bolt(folder / "chronos_bolt_tiny")
    save_chronos2(folder / "amazon" / "chronos-2")
    save_timesfm(folder / "timesfm25")
    return folder


@pytest.fixture(scope="module")
def pool(models: Path) -> ForecasterPool:
    return ForecasterPool(default_entries(models))


NAMES = ["chronos_bolt_tiny", "chronos2", "timesfm25"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("horizon", [1, 50, 194, 336])
def test_a_forecast_has_the_shape_that_was_asked_for(pool: ForecasterPool, name: str, horizon: int) -> None:
    quantiles = checked_forecast(pool.get(name), CONTEXTS[:2], horizon)
    assert quantiles.shape == (2, horizon, 9)
    assert quantiles.dtype == np.float64


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [2, 5, 96, 336, 600])
def test_contexts_of_any_length_are_read(pool: ForecasterPool, name: str, steps: int) -> None:
    assert checked_forecast(pool.get(name), demand(0, steps)[None], 24).shape == (1, 24, 9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("horizon", [50, 230])
def test_a_forecast_is_the_same_bits_with_any_neighbours(pool: ForecasterPool, name: str, horizon: int) -> None:
    forecaster = pool.get(name)
    together = forecaster.predict(CONTEXTS, horizon)
    order = np.random.default_rng(0).permutation(len(CONTEXTS))
    assert np.array_equal(forecaster.predict(CONTEXTS[order], horizon), together[order])
    assert np.array_equal(forecaster.predict(CONTEXTS[7:8], horizon)[0], together[7])


@pytest.mark.parametrize("name", NAMES)
def test_a_forecast_follows_its_own_context(pool: ForecasterPool, name: str) -> None:
    low, high = checked_forecast(pool.get(name), np.stack([CONTEXTS[0], 5 * CONTEXTS[0]]), 24)
    assert np.median(high) > 3 * np.median(low) > 0


@pytest.mark.parametrize(
    ("name", "path"), [("chronos_bolt_tiny", "chronos_bolt_tiny"), ("chronos2", "amazon/chronos-2")]
)
@pytest.mark.parametrize("horizon", [50, 230])
def test_quantiles_are_the_librarys_own(pool: ForecasterPool, models: Path, name: str, path: str, horizon: int) -> None:
    """Also past the model's own horizon, where the library extends it."""
    pipeline = BaseChronosPipeline.from_pretrained(models / path, device_map="cpu", dtype=torch.float32)
    inputs = torch.from_numpy(CONTEXTS[:3].astype(np.float32))[:, None] if name == "chronos2" else None
    given = inputs if inputs is not None else torch.from_numpy(CONTEXTS[:3].astype(np.float32))
    expected, _ = pipeline.predict_quantiles(given, prediction_length=horizon, quantile_levels=LEVELS)
    expected = torch.cat(expected) if isinstance(expected, list) else expected
    np.testing.assert_allclose(pool.get(name).predict(CONTEXTS[:3], horizon), expected.numpy(), rtol=2e-6)


def test_timesfm_leaves_its_mean_channel_out(pool: ForecasterPool) -> None:
    forecaster = pool.get("timesfm25")
    quantiles = forecaster.predict(CONTEXTS[:1], 24)
    point, _ = forecaster._model.forecast(24, [CONTEXTS[0]])  # type: ignore[attr-defined]  # the median, in the library
    assert np.array_equal(quantiles[0, :, 4], point[0])


def test_threads_may_share_a_forecaster(pool: ForecasterPool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    requests = [(seed, horizon) for seed in range(4) for horizon in (24, 140)]
    for name in NAMES:
        forecaster = pool.get(name)

        def run(request: tuple[int, int], forecaster: Forecaster = forecaster) -> np.ndarray:
            return forecaster.predict(CONTEXTS[request[0]][None], request[1])

        with ThreadPoolExecutor(4) as threads:
            for alone, shared in zip(map(run, requests), threads.map(run, requests), strict=True):
                assert np.array_equal(alone, shared)


def test_bfloat16_is_another_forecast_under_another_identity(models: Path) -> None:
    source = chronos_models.BOLT_TINY.within(models)
    half = Chronos(chronos_models.BOLT_TINY_INFO, source, dtype="bfloat16").predict(CONTEXTS[:1], 24)
    full = Chronos(chronos_models.BOLT_TINY_INFO, source).predict(CONTEXTS[:1], 24)
    assert not np.array_equal(half, full)
    np.testing.assert_allclose(half, full, rtol=0.1)
    assert source.identity("bfloat16") != source.identity("float32")


class TestSources:
    def test_identity_is_that_of_the_weights(self, models: Path, tmp_path: Path) -> None:
        source = chronos_models.BOLT_TINY.within(models)
        assert source.identity() == dataclasses.replace(source, models=None, local=models / source.name).identity()
        save_bolt(tmp_path / source.name, seed=1)
        assert source.within(tmp_path).identity() != source.identity()

    def test_the_folders_variable_is_read_when_a_pool_is_made(
        self, models: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CASTGYM_MODELS", str(models))
        pool = ForecasterPool(default_entries())
        monkeypatch.delenv("CASTGYM_MODELS")
        pool.require(NAMES)
        assert pool.forecast("chronos_bolt_tiny", CONTEXTS[0], 24).shape == (24, 9)

    def test_a_variable_that_names_no_folder_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CASTGYM_MODELS", "/no/such/folder")
        with pytest.raises(ConfigError, match="/no/such/folder"):
            models_folder()

    def test_incomplete_weights_name_what_is_missing(self, tmp_path: Path) -> None:
        (tmp_path / "chronos2").mkdir()
        (tmp_path / "chronos2" / "config.json").write_text("{}")
        with pytest.raises(ForecasterUnavailableError, match=r"model.safetensors not found in .*chronos2"):
            ForecasterPool(default_entries(tmp_path)).require(["chronos2"])

    @pytest.mark.parametrize("kept", [0, 1000, -100])
    @pytest.mark.parametrize("name", ["chronos_bolt_tiny", "timesfm25"])
    def test_damaged_weights_are_refused(self, models: Path, tmp_path: Path, name: str, kept: int) -> None:
        shutil.copytree(models / name, tmp_path / name)
        weights = tmp_path / name / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:kept])
        with pytest.raises(ForecasterUnavailableError, match=f"the weights of {name} in .* do not load"):
            ForecasterPool(default_entries(tmp_path)).get(name)

    @pytest.mark.parametrize(
        "build",
        [
            lambda source: Chronos(chronos_models.CHRONOS2_INFO, source),
            lambda source: TimesFM25(source),
        ],
        ids=["chronos", "timesfm"],
    )
    def test_weights_of_another_model_are_refused(self, models: Path, build: object, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        (tmp_path / "model.safetensors").write_bytes((models / "chronos_bolt_tiny" / "model.safetensors").read_bytes())
        with pytest.raises(ForecasterUnavailableError, match="do not load"):
            build(ModelSource("x", "chronos-forecasting", local=tmp_path))  # type: ignore[operator]

    @pytest.mark.parametrize(
        ("module", "build"),
        [
            ("chronos", lambda source: Chronos(chronos_models.CHRONOS2_INFO, source)),
            ("timesfm", lambda source: TimesFM25(source)),
        ],
    )
    def test_a_missing_package_names_the_extra(
        self, models: Path, module: str, build: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ForecasterUnavailableError, match=r"castgym\[forecast\]"):
            build(timesfm_model.SOURCE.within(models))  # type: ignore[operator]

    def test_a_missing_distribution_is_known_without_an_import(self, models: Path) -> None:
        with pytest.raises(ForecasterUnavailableError, match=r"castgym\[forecast\]"):
            ModelSource("x", "no-such-distribution", local=models / "timesfm25").identity()

    def test_without_network_the_error_says_where_to_put_weights(self, tmp_path: Path) -> None:
        """In a process of its own whose hub client is told that there is no network."""
        code = (
            "from castgym.tools.forecasters.pool import ForecasterPool, default_entries;"
            "ForecasterPool(default_entries()).require(['chronos_bolt_tiny'])"
        )
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        )
        last = result.stderr.splitlines()[-1]
        assert "ForecasterUnavailableError" in last
        assert "CASTGYM_MODELS=<folder>" in last
        assert "<folder>/chronos_bolt_tiny" in last

    def test_what_was_downloaded_once_needs_no_network(self, models: Path, tmp_path: Path) -> None:
        """The hub's cache layout: a ref that names a commit, and its snapshot."""
        repository = tmp_path / "models--amazon--chronos-bolt-tiny"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("0" * 40)
        (repository / "snapshots").mkdir()
        (repository / "snapshots" / ("0" * 40)).symlink_to(models / "chronos_bolt_tiny")
        code = (
            "import sys; from castgym.tools.forecasters.pool import ForecasterPool, default_entries;"
            "ForecasterPool(default_entries()).require(['chronos_bolt_tiny']); assert 'torch' not in sys.modules"
        )
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr


class TestPins:
    """A revision that a user names is the one that is loaded."""

    FIRST, SECOND = "a" * 40, "b" * 40

    @pytest.fixture
    def hub(self, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The hub's cache: `main` at a first commit, the tag `v2` at a second one with other weights; no network."""
        import huggingface_hub.constants

        repository = tmp_path / "hub" / "models--amazon--chronos-bolt-tiny"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(self.FIRST)
        (repository / "refs" / "v2").write_text(self.SECOND)
        shutil.copytree(models / "chronos_bolt_tiny", repository / "snapshots" / self.FIRST)
        save_bolt(repository / "snapshots" / self.SECOND, seed=1)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        return repository / "snapshots"

    @pytest.mark.parametrize(
        ("pin", "commit"),
        [
            ("amazon/chronos-bolt-tiny", FIRST),
            (f"amazon/chronos-bolt-tiny@{FIRST}", FIRST),
            (f"amazon/chronos-bolt-tiny@{SECOND}", SECOND),
            ("amazon/chronos-bolt-tiny@v2", SECOND),
        ],
    )
    def test_the_pinned_revision_is_what_forecasts(
        self, hub: Path, models: Path, pin: str, commit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CASTGYM_MODELS", f"{models}, chronos_bolt_tiny={pin}")
        pool = ForecasterPool(default_entries())
        weights = ModelSource("chronos_bolt_tiny", chronos_models.PACKAGE, local=hub / commit)
        expected = Chronos(chronos_models.BOLT_TINY_INFO, weights, batch_size=4).predict(CONTEXTS[:1], 24)
        assert np.array_equal(pool.forecast("chronos_bolt_tiny", CONTEXTS[0], 24), np.sort(expected[0]))
        assert chronos_models.BOLT_TINY.at(pin).identity() == weights.identity()
        pool.require(["timesfm25"])  # not pinned: from the folder

    def test_a_commit_that_is_not_there_is_no_other_one(self, hub: Path) -> None:
        pins = {"chronos_bolt_tiny": f"amazon/chronos-bolt-tiny@{'c' * 40}"}
        with pytest.raises(ForecasterUnavailableError, match="ccccc"):
            ForecasterPool(default_entries(pins=pins)).require(["chronos_bolt_tiny"])

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("chronos2=chronos-2", "expected a hub model such as amazon/chronos-2@COMMIT for chronos2"),
            ("chronos2=amazon/chronos-2@", "found 'amazon/chronos-2@'"),
            ("chronos9=amazon/chronos-2@abc", "no hub model is pinned for chronos9: expected one of chronos_bolt"),
            ("castgym_bolt=org/name@abc", "castgym_bolt does not come from the hub"),
            ("chronos2=a/b@c,chronos2=a/b@d", "pins a forecaster twice"),
            ("/no/such/folder,chronos2=a/b@c", "names /no/such/folder, which is no folder"),
        ],
    )
    def test_a_setting_that_fits_nothing_is_refused(
        self, setting: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CASTGYM_MODELS", setting)
        with pytest.raises(ConfigError, match=message):
            default_entries()

    def test_a_folder_may_have_any_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "a=b, c"
        folder.mkdir()
        monkeypatch.setenv("CASTGYM_MODELS", str(folder))
        assert models_folder() == folder
        monkeypatch.delenv("CASTGYM_MODELS")
        assert models_folder() is None
