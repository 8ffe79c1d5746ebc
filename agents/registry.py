"""Policies by name."""

import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from castgym.agents.base import Desk, Policy
from castgym.agents.fixed import ClassicalPolicy, ForecastPolicy
from castgym.agents.oracles import MenuOracle, PerfectDemand, catalog_models
from castgym.agents.selectors import BacktestSelector
from castgym.data.errors import ConfigError
from castgym.data.schema import HISTORY_HOURS
from castgym.data.tariff import Tariff
from castgym.envs.casesets import LoadedCases
from castgym.tools.planning.classical import CLASSICAL_METHODS

SELECTOR_WINDOWS = (4, 8)


def policy_factories(loaded: LoadedCases, desk: Desk) -> dict[str, Callable[[], Policy]]:
    """How to build each policy that a case set allows, by name.

    Args:
        loaded: cases and truth; only hindsight references get the truth.
        desk: prices and forecasters.
    """
    cases, targets = loaded.case_set, loaded.targets
    factories: dict[str, Callable[[], Policy]] = {
        method: partial(ClassicalPolicy, method) for method in CLASSICAL_METHODS
    }
    for model in desk.models:
        factories[f"fixed_{model}"] = partial(ForecastPolicy, model)
    for windows in SELECTOR_WINDOWS:
        factories[f"backtest_{windows}"] = partial(BacktestSelector, windows)
    factories["lead_matched_4"] = partial(BacktestSelector, 4, lead_matched=True)
    factories["perfect_demand"] = partial(PerfectDemand, cases, targets)
    factories["free_menu_oracle"] = partial(MenuOracle, "free_menu_oracle", cases, targets, (), desk)
    factories["catalog_oracle"] = partial(
        MenuOracle, "catalog_oracle", cases, targets, catalog_models(desk.models), desk
    )
    return factories


def make_policies(names: Sequence[str], loaded: LoadedCases, desk: Desk) -> list[Policy]:
    """Build policies by name; `all` stands for every shipped one, `module:name` for one's own.

    Args:
        names: shipped names, `all`, or `module:name` where calling `name` without arguments gives a `Policy`.
        loaded: cases and truth.
        desk: prices and forecasters.

    Raises:
        ConfigError: a name is unknown, leads to no policy, or no name is given.
        ForecasterUnavailableError: a policy needs a forecaster whose package or weights are missing.
    """
    factories = policy_factories(loaded, desk)
    wanted = wanted_policies(names, factories)
    policies = [factories[name]() if name in factories else imported_policy(name) for name in wanted]
    horizons = {case.expected_horizon for case in loaded.case_set}
    for policy in policies:
        # A model that no case can pay for never runs, so its weights need not be there.
        desk.pool.require([name for name in policy.requires if _payable(name, horizons, desk.tariff)])
    return policies


def wanted_policies(names: Sequence[str], known: Collection[str]) -> list[str]:
    """The names that are meant, each once; `all` stands for every known one.

    Raises:
        ConfigError: a name is neither known nor `module:name`, or no name is given.
    """
    wanted = list(dict.fromkeys(name for given in names for name in (known if given == "all" else [given])))
    unknown = [name for name in wanted if name not in known and ":" not in name]
    if unknown or not wanted:
        found = ", ".join(unknown) or "none"
        raise ConfigError(f"unknown policy {found}: expected one of {', '.join(known)}, all, or module:name")
    return wanted


def _payable(model: str, horizons: Collection[int], tariff: Tariff) -> bool:
    return any(tariff.price(model, horizon, HISTORY_HOURS).credits <= tariff.budget for horizon in horizons)


def imported_policy(name: str) -> Policy:
    """One's own policy.

    Args:
        name: `module:name`, where calling `name` without arguments gives a `Policy`.

    Raises:
        ConfigError: it leads to no policy.
    """
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:  # a console script does not look into the folder where it is called
        sys.path.insert(0, str(Path.cwd()))
    try:
        policy = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"no policy {name}: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        raise ConfigError(f"{name} gave a {type(policy).__name__}: expected a castgym.agents.base.Policy")
    return policy
