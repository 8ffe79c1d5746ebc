"""Run settings from YAML files: one typed model a script, unknown names and wrong types refused.

PyYAML reads `1e-6` as a string (YAML 1.1 wants the dot): write `1.0e-6`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from castgym.data.errors import ConfigError


class RunConfig(BaseModel):
    """Base of a script's settings and of their sections: strict types, no unknown names, never changed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def identity(self, *left_out: str) -> dict[str, Any]:
        """What makes two runs the same: the settings as JSON, by name.

        Args:
            left_out: names of settings in which the two may differ.

        Raises:
            ConfigError: there is no such setting.
        """
        settings = self.model_dump(mode="json")
        unknown = set(left_out) - set(settings)
        if unknown:
            raise ConfigError(f"no such settings: {', '.join(sorted(unknown))}")
        return {name: value for name, value in settings.items() if name not in left_out}


C = TypeVar("C", bound=RunConfig)


def load_run_config(path: Path, kind: type[C], changes: Sequence[str] = ()) -> C:
    """Read the settings of a run.

    Relative paths in the file are left as they are: they count from the folder in which the script runs.

    Args:
        path: YAML file with one mapping.
        kind: model of the settings.
        changes: settings that override the file's, as `name=value` or `section.name=value`; values are YAML.

    Raises:
        ConfigError: the file cannot be read, or does not fit the model; the message names every misfit.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"expected a YAML file {path}: {error}") from error
    settings = _read_yaml(text, str(path))
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: expected a mapping of settings, found {type(settings).__name__}")
    for change in changes:
        _change(settings, change)
    try:
        # Through JSON, where strict types still take a string for a path and a list for a tuple.
        return kind.model_validate_json(json.dumps(settings, allow_nan=False))
    except ValidationError as error:
        raise ConfigError("\n".join([f"{path} does not fit:", *map(_explain, error.errors())])) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: expected numbers, text, lists and mappings: {error}") from error


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a name given twice, of which PyYAML would silently keep the last."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    names = [loader.construct_object(key, deep=True) for key, _ in node.value]
    twice = {str(name) for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"expected each setting once, found twice: {', '.join(sorted(twice))}")
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _read_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: expected YAML: {error}") from error


def _change(settings: dict[str, Any], change: str) -> None:
    name, equals, value = change.partition("=")
    *sections, last = name.strip().split(".")
    if not equals or not last:
        raise ConfigError(f"expected a change as name=value or section.name=value, found {change!r}")
    place = settings
    for section in sections:
        if place.get(section) is None:
            place[section] = {}
        place = place[section]
        if not isinstance(place, dict):
            raise ConfigError(f"{change!r}: {section} is no section")
    place[last] = _read_yaml(value, repr(change))


def _explain(item: Any) -> str:
    where = ".".join(map(str, item["loc"])) or "settings"
    found = item["input"]
    line = f"  {where}: {item['msg']}, found {str(repr(found))[:120]}"
    if item["type"] == "missing":
        return f"  {where}: expected a value, found none"
    if item["type"] == "extra_forbidden":
        return f"  {where}: there is no such setting"
    return f"{line}{_number_hint(found)}"


def _number_hint(found: object) -> str:
    if not isinstance(found, str):
        return ""
    try:
        float(found)
    except ValueError:
        return ""
    return " (a string: YAML wants numbers unquoted and with a dot, such as 1.0e-6)"
