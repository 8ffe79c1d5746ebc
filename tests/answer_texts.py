"""Submissions in every allowed form, and text that stands around or breaks them."""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from castgym.tools.planning.submission import DEFAULT_BLOCK_IDS

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

VALUES = [100, 112.5, 125.0, 130, 120.25, 110, 1e2, 97.5]
RECORDS = [{"id": name, "action": value} for name, value in zip(DEFAULT_BLOCK_IDS, VALUES, strict=True)]
PAYLOAD = {"decisions": RECORDS}
OFFICIAL = json.dumps(PAYLOAD)
ARRAY = json.dumps(RECORDS)
BLOCKS = json.dumps(dict(zip(DEFAULT_BLOCK_IDS, VALUES, strict=True)))
FORMS = [
    OFFICIAL,
    ARRAY,
    BLOCKS,
    json.dumps({"note": 'see [1] and {"b00": 5}', **PAYLOAD, "why": "it } fits"}, indent=1),
]

NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
METADATA = st.dictionaries(
    st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=6).map("x{}".format),
    st.none() | st.booleans() | NUMBERS | st.text("ab{}[]\"'\\: ,", max_size=8) | st.lists(st.integers(), max_size=3),
    max_size=2,
)
PROSE = st.lists(
    st.text("ab .,;!?()\n\"'=-0123456789é你😀", max_size=8)
    | st.sampled_from(["[0,24)", "(0, 24]", "[0, 24]", "[t, t+3)", "[note]", "{b}", "{0.40, 0.45, ..., 2.00}", "[1]"]),
    max_size=4,
).map(" ".join)
PIECES = ["{", "}", "[", "]", ",", ":", '"', "b00", '"b01": 5', '{"id": "b00", "action": 1}', "[0,24)", "(0,24]", "[1]"]
PIECES += ["NaN", "1e999", "```json\n", "```", "decisions", "\\", "\n", " ", "text", '"decisions": [', "\ud800", "\x00"]
FRAGMENTS = st.lists(st.sampled_from(PIECES) | st.sampled_from(FORMS), max_size=25).map("".join)
