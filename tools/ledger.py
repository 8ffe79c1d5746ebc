"""The ledger of a case: what forecasts cost, what was spent, durable before the work starts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from castgym.data.errors import CastgymError, DataError
from castgym.data.files import append_lines, cut_unfinished_line
from castgym.data.tariff import Tariff

ChargeStatus = Literal["charged", "settled", "backend_error"]


class UnaffordableError(CastgymError):
    """A request costs more than what is left; nothing ran and nothing was charged."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of a request.

    Attributes:
        model: forecaster.
        horizon: steps asked for.
        context_steps: observations to be read.
        horizon_bucket: the tariff's horizon that is charged.
        context_bucket: the tariff's context that is charged.
        credits: price.
        affordable: the price is at most what is left.
    """

    model: str
    horizon: int
    context_steps: int
    horizon_bucket: int
    context_bucket: int
    credits: int
    affordable: bool


@dataclass(frozen=True, slots=True)
class Charge:
    """One paid request. A charge that never settled (crash, time-out) keeps its credits."""

    number: int
    tool: str
    model: str
    horizon: int
    context_steps: int
    credits: int
    status: ChargeStatus = "charged"


class Ledger:
    """Quotes, charges and settles the forecasts of one case.

    Args:
        tariff: rates and budget.
        path: journal on disk (JSON lines). Each charge is synced to it before `charge` returns; an existing
            journal is continued. Without a path the ledger lives in memory.

    Raises:
        DataError: the journal is damaged.
    """

    def __init__(self, tariff: Tariff, path: Path | None = None) -> None:
        self._tariff = tariff
        self._path = path
        self._charges: list[Charge] = []
        if path is not None and path.exists():
            self._replay(path)

    @property
    def tariff(self) -> Tariff:
        """Rates and budget."""
        return self._tariff

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges in their order."""
        return tuple(self._charges)

    @property
    def spent(self) -> int:
        """Credits charged so far."""
        return sum(charge.credits for charge in self._charges)

    @property
    def remaining(self) -> int:
        """Credits left."""
        return self._tariff.budget - self.spent

    def quote(self, model: str, horizon: int, context_steps: int) -> Quote:
        """Price a request; free.

        Raises:
            ConfigError: the tariff has no rate for it.
        """
        rate = self._tariff.price(model, horizon, context_steps)
        affordable = rate.credits <= self.remaining
        return Quote(model, horizon, context_steps, rate.horizon, rate.context_steps, rate.credits, affordable)

    def check(self, quote: Quote) -> None:
        """Refuse what cannot be paid.

        Raises:
            UnaffordableError: the price is more than what is left.
        """
        if quote.credits > self.remaining:
            raise UnaffordableError(
                f"{quote.model} with horizon {quote.horizon} and context {quote.context_steps} costs {quote.credits} "
                f"credits; {self.remaining} of {self._tariff.budget} are left"
            )

    def charge(self, quote: Quote, tool: str) -> int:
        """Take the credits of a quote, durably, before any work starts.

        Args:
            quote: the price.
            tool: the tool that spends it.

        Returns:
            The charge's number, for `settle`.

        Raises:
            UnaffordableError: the price is more than what is left.
        """
        self.check(quote)
        charge = Charge(len(self._charges), tool, quote.model, quote.horizon, quote.context_steps, quote.credits)
        self._append({"event": "charge", **asdict(charge)})
        self._charges.append(charge)
        return charge.number

    def settle(self, number: int, status: Literal["settled", "backend_error"]) -> None:
        """Note how a charged request ended. Credits stay charged either way."""
        self._append({"event": "settle", "number": number, "status": status})
        self._charges[number] = replace(self._charges[number], status=status)

    def to_json(self) -> list[dict[str, Any]]:
        """All charges, for an episode's state."""
        return [asdict(charge) for charge in self._charges]

    @classmethod
    def from_json(cls, tariff: Tariff, charges: Sequence[Mapping[str, Any]], path: Path | None = None) -> "Ledger":
        """Rebuild a ledger from `to_json`, with a journal of its own.

        Args:
            tariff: rates and budget.
            charges: what `to_json` gave.
            path: journal to create with these charges; without it the ledger lives in memory.

        Raises:
            DataError: a charge is not what the tariff asks for, the budget is overdrawn, or the journal exists.
        """
        if path is not None and path.exists():
            raise DataError(f"the journal {path} exists already: a continued ledger needs a new one")
        ledger = cls(tariff, path)
        try:
            ledger._charges = [_checked(Charge(**charge), number, tariff) for number, charge in enumerate(charges)]
        except (TypeError, ValueError) as error:
            raise DataError(f"invalid saved charges: {error}") from error
        if ledger.remaining < 0:
            raise DataError(f"the saved charges sum to {ledger.spent} of {tariff.budget} credits")
        if ledger._charges:
            ledger._append(*({"event": "charge", **asdict(charge)} for charge in ledger._charges))
        return ledger

    def _append(self, *entries: Mapping[str, Any]) -> None:
        if self._path is not None:
            append_lines(self._path, map(json.dumps, entries))

    def _replay(self, path: Path) -> None:
        cut_unfinished_line(path)  # its charge was never confirmed, so its work never started
        try:
            for line in path.read_bytes().splitlines():
                entry = json.loads(line)
                event = entry.pop("event")
                if event == "charge":
                    self._charges.append(Charge(**entry))
                else:
                    self._charges[entry["number"]] = replace(self._charges[entry["number"]], status=entry["status"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(f"the ledger journal {path} is damaged: {error!r}; restore or remove it") from error


def _checked(charge: Charge, number: int, tariff: Tariff) -> Charge:
    """A saved charge, if the tariff asks for just that.

    Raises:
        DataError: it does not.
    """
    price = tariff.price(charge.model, charge.horizon, charge.context_steps).credits
    if (charge.number, charge.credits) != (number, price) or charge.status not in get_args(ChargeStatus):
        raise DataError(f"charge {number} is not what the tariff asks for ({price} credits): {charge}")
    return charge
