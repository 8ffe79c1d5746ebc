"""The form of a submission: which block gets which capacity, read from already parsed JSON.

The reader of model text and the grader both use this module, so that both refuse the same things under the same
published names (protocol, "Reading the final text" and "Grading a submission").
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

DECISIONS_KEY = "decisions"
ID_FIELD = "id"
ACTION_FIELD = "action"
ID_FIELDS = (ID_FIELD, "decision_id", "block_id", "block")
"""Names under which a record may state its block; the first is canonical."""
ACTION_FIELDS = (ACTION_FIELD, "value", "capacity")
"""Names under which a record may state its capacity; the first is canonical."""

SubmissionFault = Literal[
    "not_a_decision_submission",
    "missing_or_extra_decisions",
    "missing_decision_fields",
    "unknown_decision_id",
    "duplicate_decision_id",
    "nonfinite_or_nonnumeric_action",
]


class RawActions(NamedTuple):
    """Actions in block order as the JSON gave them, or the named fault of the submission's form."""

    actions: list[Any] | None
    fault: SubmissionFault | None = None
    detail: str = ""


class DecisionValues(NamedTuple):
    """Capacities in block order, physical units, or a named fault and its explanation."""

    values: list[float] | None
    fault: SubmissionFault | None = None
    detail: str = ""


def block_ids(count: int) -> tuple[str, ...]:
    """Names of `count` blocks in order of time: `b00`, `b01`, ..."""
    return tuple(f"b{index:02d}" for index in range(count))


DEFAULT_BLOCK_IDS = block_ids(8)
"""The eight three-hour blocks of the protocol."""


def decision_values(payload: object, block_ids: Sequence[str] = DEFAULT_BLOCK_IDS) -> DecisionValues:
    """Capacities of a submission whose values must already be JSON numbers.

    Args:
        payload: `{"decisions": [{"id": ..., "action": ...}, ...]}` or `{"b00": ..., "b01": ..., ...}`.
        block_ids: the blocks, in order.

    Returns:
        One value a block, in the order of `block_ids`; or `values=None`, the published name of the first fault and
        its explanation. Nothing is rounded, clamped or converted from text.
    """
    actions, fault, detail = raw_actions(payload, block_ids)
    if actions is None:
        return DecisionValues(None, fault, detail)
    for name, action in zip(block_ids, actions, strict=True):
        if not is_finite_number(action):
            return DecisionValues(
                None, "nonfinite_or_nonnumeric_action", f"{name}: expected a finite number, found {_short(action)}"
            )
    return DecisionValues([float(action) for action in actions])


def raw_actions(payload: object, block_ids: Sequence[str] = DEFAULT_BLOCK_IDS) -> RawActions:
    """Match the records of a submission with the blocks, each exactly once, whatever their actions are.

    Keys beside `decisions` and further keys of a record are metadata and are ignored. A record that states its block
    or its capacity under two names is refused, and so is an object that has block IDs beside `decisions`: neither
    statement is preferred.

    Args:
        payload: parsed JSON.
        block_ids: the blocks, in order.

    Returns:
        The actions in the order of `block_ids`, or a named fault. The number of records is checked first, then their
        fields, then their IDs.
    """
    if not isinstance(payload, Mapping):
        return RawActions(None, "not_a_decision_submission", f"expected a JSON object, found {_short(payload)}")
    if "name" in payload and "arguments" in payload:
        return RawActions(None, "not_a_decision_submission", "a tool call is not a submission")
    stated = [name for name in block_ids if name in payload]
    if DECISIONS_KEY not in payload:
        return _block_object(payload, block_ids, stated)
    if stated:
        return RawActions(None, "missing_or_extra_decisions", f"{stated[0]!r} stands beside {DECISIONS_KEY!r}")
    return _records(payload[DECISIONS_KEY], block_ids)


def is_finite_number(value: object) -> bool:
    """Whether a value is a JSON number that float64 can hold; booleans and text are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _block_object(payload: Mapping[Any, Any], block_ids: Sequence[str], stated: list[str]) -> RawActions:
    if not stated:
        return RawActions(
            None, "not_a_decision_submission", f"expected the key {DECISIONS_KEY!r} or exactly the block IDs as keys"
        )
    if len(stated) < len(block_ids) or len(payload) > len(block_ids):
        return RawActions(
            None,
            "missing_or_extra_decisions",
            f"expected exactly the keys {', '.join(block_ids)}; found {len(stated)} of them among {len(payload)} keys",
        )
    return RawActions([payload[name] for name in block_ids])


def _records(records: object, block_ids: Sequence[str]) -> RawActions:
    if not isinstance(records, list | tuple):
        return RawActions(
            None, "not_a_decision_submission", f"expected {DECISIONS_KEY!r} to be a list, found {_short(records)}"
        )
    if len(records) != len(block_ids):
        return RawActions(
            None, "missing_or_extra_decisions", f"expected {len(block_ids)} decisions, found {len(records)}"
        )
    actions: dict[str, Any] = {}
    for index, record in enumerate(records):
        id_fields, action_fields = stated_fields(record)
        if len(id_fields) != 1 or len(action_fields) != 1:
            return RawActions(
                None,
                "missing_decision_fields",
                f"decision {index}: expected exactly one {ID_FIELD!r} and one {ACTION_FIELD!r}",
            )
        name = record[id_fields[0]]
        if not isinstance(name, str) or name not in block_ids:
            return RawActions(None, "unknown_decision_id", f"decision {index}: no block is named {_short(name)}")
        if name in actions:
            return RawActions(None, "duplicate_decision_id", f"{name} is decided twice")
        actions[name] = record[action_fields[0]]
    return RawActions([actions[name] for name in block_ids])


def stated_fields(record: object) -> tuple[list[str], list[str]]:
    """Which of `ID_FIELDS` and of `ACTION_FIELDS` a record has; both empty for what is not an object."""
    if not isinstance(record, Mapping):
        return [], []
    return [name for name in ID_FIELDS if name in record], [name for name in ACTION_FIELDS if name in record]


def _short(value: object) -> str:
    if isinstance(value, str):
        return ascii(value if len(value) <= 40 else value[:40] + "...")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64):
        return repr(value)
    return "a huge integer" if isinstance(value, int) else f"a value of type {type(value).__name__}"
