"""The ledger: prices, durability, and what a crash leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castgym.data.errors import ConfigError, DataError
from castgym.data.tariff import OFFLINE_TARIFF, PROTOCOL_TARIFF, Rate, Tariff
from castgym.tools.ledger import Ledger, UnaffordableError


@pytest.mark.parametrize(
    ("model", "horizon", "context", "credits"),
    [
        ("chronos_bolt_tiny", 24, 96, 7273),
        ("chronos_bolt_tiny", 50, 336, 8452),
        ("chronos_bolt_tiny", 194, 336, 69541),
        ("chronos_bolt_tiny", 25, 2, 7344),
        ("chronos_bolt_tiny", 65, 97, 26108),
        ("chronos2", 336, 336, 116839),
        ("timesfm25", 24, 96, 1181871),
        ("seasonal_empirical", 50, 168, 1027),
        ("seasonal_empirical", 194, 336, 3756),
    ],
)
def test_the_published_prices(model: str, horizon: int, context: int, credits: int) -> None:  # noqa: A002
    assert PROTOCOL_TARIFF.price(model, horizon, context).credits == credits


def test_fracast_costs_what_bolt_tiny_costs_under_its_own_name() -> None:
    for horizon in (1, 64, 96, 192, 240, 336):
        for context in (96, 336):
            own = OFFLINE_TARIFF.price("fracast", horizon, context)
            assert own.model == "fracast"
            assert own.credits == OFFLINE_TARIFF.price("chronos_bolt_tiny", horizon, context).credits


@given(horizon=st.integers(1, 336), context=st.integers(2, 336), model=st.sampled_from(PROTOCOL_TARIFF.models))
def test_a_request_takes_the_smallest_context_then_the_smallest_horizon_that_fits(
    horizon: int, context: int, model: str
) -> None:
    fitting = [
        rate
        for rate in PROTOCOL_TARIFF.rates
        if rate.model == model and rate.context_steps >= context and rate.horizon >= horizon
    ]
    assert PROTOCOL_TARIFF.price(model, horizon, context) == min(
        fitting, key=lambda rate: (rate.context_steps, rate.horizon)
    )


def test_the_tariff_reads_back_what_it_writes_with_the_published_suffix() -> None:
    written = PROTOCOL_TARIFF.to_json()
    assert written["rates"][0]["model"].endswith("_quantiles")
    assert Tariff.from_json(written) == PROTOCOL_TARIFF


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"budget": 1.5, "rates": []},
        {"budget": 0, "rates": []},
        {"budget": True, "rates": []},
        {"budget": 5, "rates": [{}]},
    ],
)
def test_bad_tariffs_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(DataError):
        Tariff.from_json(value)


def test_two_rates_for_one_bucket_are_refused() -> None:
    with pytest.raises(DataError, match="duplicates"):
        Tariff(10, (Rate("m", 96, 24, 1), Rate("m", 96, 24, 2)))


def test_unknown_models_and_too_large_requests_have_no_price() -> None:
    ledger = Ledger(PROTOCOL_TARIFF)
    for request in (("nothing", 24, 96), ("chronos2", 337, 96), ("chronos2", 24, 337)):
        with pytest.raises(ConfigError):
            ledger.quote(*request)
    assert ledger.spent == 0


def test_a_charge_stays_whether_the_forecast_worked_or_not() -> None:
    ledger = Ledger(PROTOCOL_TARIFF)
    for status in ("settled", "backend_error"):
        number = ledger.charge(ledger.quote("chronos_bolt_tiny", 50, 336), "forecast_and_plan")
        ledger.settle(number, status)  # type: ignore[arg-type]
    assert ledger.spent == 2 * 8452
    assert [charge.status for charge in ledger.charges] == ["settled", "backend_error"]


def test_what_cannot_be_paid_is_refused_and_free() -> None:
    ledger = Ledger(PROTOCOL_TARIFF)
    ledger.charge(ledger.quote("chronos2", 50, 336), "forecast_and_plan")
    quote = ledger.quote("chronos2", 50, 336)
    assert not quote.affordable
    with pytest.raises(UnaffordableError, match="9920"):
        ledger.charge(quote, "forecast_and_plan")
    assert ledger.spent == 103_806


def test_the_whole_budget_can_be_spent() -> None:
    ledger = Ledger(PROTOCOL_TARIFF)
    ledger.charge(ledger.quote("chronos2", 96, 336), "forecast_and_plan")
    assert ledger.remaining == 0


def test_the_journal_continues_after_the_process_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "ledger.jsonl"
    script = (
        "import sys, time; from pathlib import Path; from castgym.data.tariff import PROTOCOL_TARIFF as T;"
        "from castgym.tools.ledger import Ledger; ledger = Ledger(T, Path(sys.argv[1]));"
        "ledger.charge(ledger.quote('chronos_bolt_tiny', 50, 336), 'forecast_and_plan');"
        "print('charged', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(journal)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "charged\n"
        os.kill(process.pid, signal.SIGKILL)
    again = Ledger(PROTOCOL_TARIFF, journal)
    assert again.spent == 8452
    assert again.charges[0].status == "charged"


def test_a_line_that_a_crash_cut_was_never_charged(tmp_path: Path) -> None:
    journal = tmp_path / "ledger.jsonl"
    ledger = Ledger(PROTOCOL_TARIFF, journal)
    ledger.charge(ledger.quote("chronos_bolt_tiny", 50, 336), "forecast_and_plan")
    with journal.open("a") as stream:
        stream.write('{"event": "charge", "num')
    again = Ledger(PROTOCOL_TARIFF, journal)
    assert again.spent == 8452
    again.charge(again.quote("chronos_bolt_tiny", 50, 336), "forecast_and_plan")
    assert Ledger(PROTOCOL_TARIFF, journal).spent == 2 * 8452


@pytest.mark.parametrize("line", ["{}", "[1]", '{"event": "settle", "number": 7, "status": "settled"}', "nonsense"])
def test_a_damaged_journal_is_an_error(tmp_path: Path, line: str) -> None:
    journal = tmp_path / "ledger.jsonl"
    journal.write_text(line + "\n")
    with pytest.raises(DataError, match="damaged"):
        Ledger(PROTOCOL_TARIFF, journal)


def test_the_journal_is_plain_json_lines(tmp_path: Path) -> None:
    ledger = Ledger(PROTOCOL_TARIFF, tmp_path / "ledger.jsonl")
    ledger.settle(ledger.charge(ledger.quote("seasonal_empirical", 50, 336), "replay_forecast"), "settled")
    events = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["charge", "settle"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_a_charge_that_finds_no_room_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """A file size limit stands for a full disk: the write stops in the middle of a line."""
    journal = tmp_path / "ledger.jsonl"
    script = (
        "import resource, signal, sys; from pathlib import Path; from castgym.data.tariff import PROTOCOL_TARIFF as T;"
        "from castgym.tools.ledger import Ledger; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "ledger = Ledger(T, Path(sys.argv[1])); quote = ledger.quote('seasonal_empirical', 50, 336);"
        "ledger.charge(quote, 'a'); size = Path(sys.argv[1]).stat().st_size;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))\n"
        "try:\n    ledger.charge(quote, 'b')\nexcept OSError:\n    print('refused', ledger.spent)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "ledger.charge(quote, 'c'); print(ledger.spent)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(journal)], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["refused", "1027", "2054"]
    assert [charge.tool for charge in Ledger(PROTOCOL_TARIFF, journal).charges] == ["a", "c"]
