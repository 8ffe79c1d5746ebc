"""The page: template, style, script and data in one file that loads nothing.

The data are deflated and written in base64, an alphabet that no HTML parser can mistake for markup. The script puts
texts into the page as text, never as HTML. A content security policy forbids every connection and every script but
the page's own, so that even a fault in this could not run what a model wrote.
"""

import base64
import hashlib
import html
import json
import zlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from castgym.data.errors import ConfigError
from castgym.data.files import write_text_atomic
from castgym.envs.casesets import LoadedCases
from castgym.evaluation.html.cases import RESOLUTION, case_table, row_table
from castgym.evaluation.html.summary import summary
from castgym.evaluation.html.transcripts import choose_transcripts
from castgym.evaluation.report_tables import Report
from castgym.tools.forecasters.pool import ForecasterPool

LIMIT = 5_000_000
"""Bytes of the page; kept episodes fill what the tables leave."""

SCRIPTS = ("base.js", "overview.js", "frontier.js", "episodes.js", "chart.js", "viewer.js", "main.js")
"""Parts of the script, in their order."""


@dataclass(frozen=True, slots=True)
class HtmlReport:
    """A page that was written.

    Attributes:
        path: the file.
        size: its bytes.
        rows: episodes that it lists.
        transcripts: episodes that it holds in full.
        kept: episodes that the runs kept in full.
    """

    path: Path
    size: int
    rows: int
    transcripts: int
    kept: int


def write_html(
    report: Report,
    path: Path,
    loaded: LoadedCases | None = None,
    pool: ForecasterPool | None = None,
    *,
    limit: int = LIMIT,
) -> HtmlReport:
    """Write a report as one HTML file. The same report gives the same bytes.

    Args:
        report: from `build_report`.
        path: the file.
        loaded: the case set of the runs, for demand, capacities and plans.
        pool: forecasters, to draw the first forecasts that were bought; without it they are listed only.
        limit: bytes of the file. Tables are always whole; kept episodes are a sample where they do not fit.

    Raises:
        ConfigError: the case set is not that of the runs.
        DataError: a kept episode is damaged.
    """
    if loaded is not None and loaded.case_set.fingerprint != report.results[0].run.config.fingerprint:
        raise ConfigError(f"the runs were made on another case set than {loaded.source} (fingerprints differ)")
    cases, positions = case_table(report, loaded)
    rows = row_table(report, positions)
    overview = {**summary(report), "resolution": RESOLUTION}
    tables = {"cases": cases, "rows": rows}
    fixed = len(_page(overview, tables, ()).encode())
    room = max(0, int((limit - fixed) * 3 / 4 * 0.97) - 2_000)  # base64; some for the list of what is there
    transcripts = choose_transcripts(report, positions, loaded, pool, room)
    embedded = {"embedded": len(transcripts.keys), "kept": transcripts.kept, "keys": transcripts.keys}
    overview["transcripts"] = embedded
    text = _page(overview, tables, transcripts.chunks)
    write_text_atomic(path, text)
    count = sum(len(table["case"]) for table in rows["of"])
    return HtmlReport(path, len(text.encode()), count, len(transcripts.keys), transcripts.kept)


def _page(overview: dict[str, Any], tables: dict[str, Any], chunks: tuple[str, ...]) -> str:
    style = _asset("style.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();\n"
    policy = (
        f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(f"castgym report: {overview['title']}"),
        "style": style,
        "script": script,
        "overview": _packed(json.dumps(overview, separators=(",", ":"), allow_nan=False)),
        "tables": _packed(json.dumps(tables, separators=(",", ":"), allow_nan=False)),
        "episodes": "\n".join(
            f'<script type="text/plain" id="data-episodes-{number}">{_packed(chunk)}</script>'
            for number, chunk in enumerate(chunks)
        ),
    }
    page = _asset("page.html")
    for name, text in parts.items():
        head, mark, tail = page.partition(f"<!--{name}-->")
        if not mark:
            raise ConfigError(f"the page's template has no place for {name}: install castgym again")
        page = head + text + tail
    return page


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
