"""The page of a report: what it holds, that it loads nothing and runs nothing of a model's, and how it behaves."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from browser import Browser, find_chromium
from factories import SCRIPTED_TARIFF, ScriptedForecaster, make_case, make_loaded, scripted_pool

from castgym.agents.base import Desk, Policy, answer, classical_call
from castgym.agents.registry import make_policies
from castgym.data.errors import ConfigError, DataError
from castgym.envs.messages import Response
from castgym.envs.prompts import Prompt
from castgym.evaluation.html import transcripts, write_html
from castgym.evaluation.html.cases import RESOLUTION, plan_code, quantised
from castgym.evaluation.html.transcripts import LONGEST_TEXT
from castgym.evaluation.report import build_report
from castgym.evaluation.report_tables import Report
from castgym.evaluation.runner import EvaluationSettings, evaluate
from castgym.evaluation.runs import Run
from castgym.tools.calls import ToolCall
from castgym.tools.planning.contract import CapacityContract

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    "<!--overview--> {{title}} &lt;b&gt; ${alert(1)} \u2028 \U0001f600 <svg onload=alert(1)>"
)
LOADED = make_loaded(
    [make_case(seed, family) for seed in range(4) for family in ("day_ahead", "week_ahead")],
    tariff=SCRIPTED_TARIFF,
    models=("seasonal_empirical", "scripted"),
)
POOL = scripted_pool(ScriptedForecaster())


class Careful(Policy):
    """Looks, buys, thinks aloud, and commits the bought plan."""

    name = "careful"

    def act(self, prompt: Prompt) -> Response:
        series, step = prompt.task["series_id"], len(prompt.memory.calls)
        if step == 0:
            return ToolCall("history", {"series_id": series, "limit": 24})
        if step == 1:
            return classical_call(series, "weekly_repeat")
        if step == 2:
            horizon = prompt.task["expected_horizon"]
            arguments = {"series_id": series, "model": "scripted", "horizon": horizon, "context_steps": 96}
            return ToolCall("forecast_and_plan", arguments)
        text = answer(prompt.memory.plans[-1], prompt)
        return {"role": "assistant", "content": text, "reasoning_content": "the forecast covers the day"}


class Hostile(Policy):
    """Answers with markup, under a name of markup."""

    name = "hostile <img src=x onerror='window.hacked = 3'>"

    def act(self, prompt: Prompt) -> Response:
        if not prompt.memory.calls:
            return ToolCall(HOSTILE, {HOSTILE: HOSTILE})
        return HOSTILE + "x" * (2 * LONGEST_TEXT)


def runs_of(folder: Path, *, keep: bool = True, repeats: int = 1) -> list[Run]:
    desk = Desk(LOADED.case_set.tariff, LOADED.case_set.models, POOL)
    names = ["hour_of_day_empirical", "weekday_empirical", "perfect_demand"]
    policies: list[Policy] = [*make_policies(names, LOADED, desk), Careful(), Hostile()]
    runs = []
    for number, policy in enumerate(policies):
        conditions = EvaluationSettings(keep_episodes=keep, repeats=repeats)
        path = folder / f"run{number}"
        evaluate(policy, LOADED, LOADED.case_set, {"split": "test"}, conditions, desk, path, lambda done, total: None)
        runs.append(Run(path))
    return runs


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("runs")
    return build_report(runs_of(folder), None, folder / "report")


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_html(report, path, LOADED, POOL)
    return path


def held(path: Path) -> Mapping[str, Any]:
    """The data of a page."""
    text = path.read_text(encoding="utf-8")
    parts = re.findall(r'<script type="text/plain" id="data-([a-z0-9-]+)">([A-Za-z0-9+/=]*)</script>', text)
    found = {name: json.loads(zlib.decompress(base64.b64decode(packed))) for name, packed in parts}
    chunks = [value for name, value in found.items() if name.startswith("episodes-")]
    return {**found, "episodes": [episode for chunk in chunks for episode in chunk]}


def test_the_page_holds_every_row_exactly(report: Report, page: Path) -> None:
    data = held(page)
    cases, rows = data["tables"]["cases"], data["tables"]["rows"]
    sigma, budget = data["overview"]["sigma"], data["overview"]["budget"]
    assert [policy["name"] for policy in data["overview"]["policies"]] == [result.label for result in report.results]
    for result, table in zip(report.results, rows["of"], strict=True):
        by_key = {(row.case_id, row.repeat): row for row in result.run.rows}
        assert len(table["case"]) == len(by_key) == 8
        for place, number in enumerate(table["case"]):
            row = by_key[cases["id"][number], table["repeat"][place]]
            R = (table["loss"][place] - cases["floor"][number]) / sigma["electricity"]
            assert pytest.approx(row.R, abs=1e-4) == R
            assert 0.5 * R + 0.5 * table["credits"][place] / budget == pytest.approx(row.S, abs=1e-4)
            assert table["plan"][place] == ("" if row.grid_index is None else plan_code(row.grid_index))
            assert table["outcome"][place] == row.outcome
            assert len(table["calls"][place]) == len(row.calls)


def test_curves_and_oracle_are_those_of_the_cases(page: Path) -> None:
    cases = held(page)["tables"]["cases"]
    curves = cases["curves"]
    for number, case_id in enumerate(cases["id"]):
        case, actual = LOADED.case_set.by_id(case_id), LOADED.targets[case_id].actual
        for name, values in (("history", case.history), ("actual", actual)):
            total, drawn = 0, []
            for change in curves[name][number]:
                total += change
                drawn.append(total * curves["peak"][number] / RESOLUTION)
            assert drawn == pytest.approx(values.tolist(), abs=0.51 * curves["peak"][number] / RESOLUTION)
        contract = CapacityContract.of(case)
        assert curves["oracle"][number] == plan_code(contract.optimize(contract.demand_cost(actual)).tolist())


def test_kept_episodes_are_there_in_full(report: Report, page: Path) -> None:
    data = held(page)
    keys = data["overview"]["transcripts"]["keys"]
    assert data["overview"]["transcripts"]["embedded"] == data["overview"]["transcripts"]["kept"] == len(keys) == 40
    texts: list[str] = []
    careful = next(n for n, result in enumerate(report.results) if result.label == "careful")
    for key, episode in zip(keys, data["episodes"], strict=True):
        texts += episode["t"]
        if key[0] != careful:
            continue
        assert [len(step["out"]) for step in episode["steps"]] == [1, 1, 1, 0]
        assert [plan["source"] for plan in episode["plans"]] == ["weekly_repeat", "scripted"]
        (forecast,) = episode["forecasts"]
        assert forecast["credits"] in (7344, 48499)
        assert len(forecast["bands"]) == 3
        assert forecast["bands"][1][0] == quantised([1000.5], data["tables"]["cases"]["curves"]["peak"][key[1]])[0]
        assert texts[episode["steps"][3]["think"]] == "the forecast covers the day"
        assert "Decision time" in texts[episode["steps"][0]["m"][1][1]]


def test_a_page_meets_its_limit_and_says_what_it_left_out(report: Report, tmp_path: Path) -> None:
    whole = write_html(report, tmp_path / "whole.html", LOADED, POOL)
    least = write_html(report, tmp_path / "least.html", LOADED, POOL, limit=0)
    assert (least.transcripts, least.kept, least.rows) == (0, 40, 40)
    limit = (whole.size + least.size) // 2 + 3_000
    some = write_html(report, tmp_path / "some.html", LOADED, POOL, limit=limit)
    assert 0 < some.transcripts < 40
    assert some.size <= limit
    # Failures come first, five of a kind; then the same cases of all policies.
    keys = held(some.path)["overview"]["transcripts"]["keys"]
    hostile = next(n for n, result in enumerate(report.results) if result.label.startswith("hostile"))
    assert [key[0] for key in keys[:5]] == [hostile] * 5


def test_the_same_report_gives_the_same_bytes(report: Report, page: Path, tmp_path: Path) -> None:
    again = write_html(report, tmp_path / "again.html", LOADED, POOL)
    assert again.path.read_bytes() == page.read_bytes()


def test_the_page_names_nothing_to_load(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s'\"<)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name of a language, not a place
    assert not re.search(r"<(?:link|img|iframe|object|embed|base|form action)\b|@import|url\(|\bimport\(|fetch\(", text)
    assert re.findall(r"\bsrc=", text) == []


def test_only_the_pages_own_script_and_style_are_allowed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = policy[1].replace("&#x27;", "'")
    assert "default-src 'none'" in allowed
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in allowed


def test_texts_of_models_are_no_markup_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "window.hacked" not in text
    assert text.count("<script") == 4  # overview, tables, one chunk of episodes, and the script
    texts = [line for episode in held(page)["episodes"] for line in episode["t"]]
    assert any(line.startswith(HOSTILE) for line in texts)  # but they are all there
    longest = max(texts, key=len)
    assert "characters left out of this page" in longest
    assert len(longest) < LONGEST_TEXT + 100


def test_without_case_set_the_page_has_no_curves(report: Report, tmp_path: Path) -> None:
    found = write_html(report, tmp_path / "page.html")
    assert "curves" not in held(found.path)["tables"]["cases"]


def test_another_case_set_is_refused(report: Report, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another case set"):
        write_html(report, tmp_path / "page.html", make_loaded())


def test_a_damaged_episode_is_named(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    report = build_report(runs, None, tmp_path / "report")
    path = runs[0].path / "episodes.jsonl"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:400] + b"\n")
    with pytest.raises(DataError, match=r"episodes\.jsonl"):
        write_html(report, tmp_path / "page.html", LOADED)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: install the package `chromium` to test the page in a real browser")
    started = Browser(executable, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.requests.clear()
    browser.errors.clear()
    browser.size(1280, 900)
    browser.scheme("light")
    browser.open(page.as_uri())
    return browser


def column(browser: Browser, table: str, number: int) -> list[str]:
    """Texts of a column."""
    script = f"[...document.querySelectorAll('#{table} tr.row')].map((row) => row.cells[{number}].textContent)"
    found: list[str] = browser.run(script)
    return found


def numbers(texts: Sequence[str]) -> list[float]:
    return [float(text.replace(",", "")) for text in texts]


def view(browser: Browser) -> str:
    name: str = browser.run("document.getElementById('main').dataset.view")
    return name


def test_the_browser_shows_ranking_frontier_and_mixes(opened: Browser, report: Report) -> None:
    names = column(opened, "ranking", 1)
    assert [name for name in names if "hostile" not in name] == [
        result.label for result in report.results if "hostile" not in result.label
    ]
    assert numbers(column(opened, "ranking", 2)) == [round(result.aggregate.S, 4) + 0 for result in report.results]
    labels = opened.run(
        "[...document.querySelectorAll('#frontier text[data-label]')].map((label) => label.textContent)"
    )
    assert sorted(labels) == sorted(result.label for result in report.results)
    shown = opened.run("document.body.innerText")
    for text in (
        "Tool mix and credits",
        "Outcomes",
        "S by cohort and lead",
        "no such tool",
        "unknown tool 8",
        "scripted 1.00",
    ):
        assert text in shown


def test_sorting_by_a_header_reorders_and_is_announced(opened: Browser) -> None:
    opened.click("#ranking th:nth-child(6) button")  # valid
    opened.click("#ranking th:nth-child(8) button")  # credits
    header = "document.querySelector('#ranking th:nth-child(8)').getAttribute('aria-sort')"
    assert opened.run(header) == "ascending"
    opened.click("#ranking th:nth-child(8) button")
    assert opened.run(header) == "descending"
    assert column(opened, "ranking", 1)[0] == "careful"
    assert "credits, descending" in opened.run("document.getElementById('status').textContent")


def test_keys_filter_open_step_and_return(opened: Browser) -> None:
    opened.press("/")
    opened.wait("document.activeElement.id === 'filter'")
    for letter in "careful day_ahead":
        opened.press(letter)
    assert opened.run("document.getElementById('count').textContent") == "4 of 40 episodes"
    assert set(column(opened, "episodes", 1)) == {"careful"}
    opened.press("Enter")  # leaves the field for the first row
    opened.press("j")
    opened.press("j")
    opened.press("k")
    assert opened.run("document.querySelector('#episodes tr[aria-current=true]').dataset.index") == "1"
    opened.press("Enter")
    opened.wait("document.getElementById('main').dataset.view === 'episode' && document.querySelector('#step h3')")
    title = opened.run("document.getElementById('episode-title').textContent")
    assert title == "TEST01-2026-07-17-day_aheadcareful"
    step = "document.querySelector('#step h3').textContent"
    assert opened.run(step) == "Step 1 of 4"
    assert "history(" in opened.run("document.querySelector('#step pre.call').textContent")
    opened.press("ArrowRight")
    opened.press("ArrowRight")
    assert opened.run(step) == "Step 3 of 4"
    assert '"credits": 7344' in opened.run("document.querySelector('#step pre.result').textContent")
    opened.press("ArrowRight")
    opened.press("ArrowRight")  # there is no fifth
    assert opened.run(step) == "Step 4 of 4"
    assert "decisions" in opened.run("document.querySelector('#step pre.response').textContent")
    opened.press("ArrowLeft")
    assert "step=3" in opened.run("location.hash")
    opened.press("j")
    opened.wait("document.getElementById('episode-title')?.textContent.startsWith('TEST02')")
    opened.press("Escape")
    opened.wait("document.getElementById('main').dataset.view === 'episodes'")
    assert opened.run("document.getElementById('filter').value") == "careful day_ahead"
    assert opened.run("document.getElementById('count').textContent") == "4 of 40 episodes"
    assert opened.errors == []


def test_an_address_opens_an_episode_at_a_step(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri() + "#episode=TEST00-2026-07-17-week_ahead&policy=careful&repeat=0&step=3")
    assert browser.run("document.querySelector('#step h3').textContent") == "Step 3 of 4"
    plans = browser.run("[...document.querySelectorAll('#chart path[data-plan]')].map((path) => path.dataset.plan)")
    assert plans == ["oracle", "committed", "p1 weekly_repeat", "p2 scripted"]
    shown = browser.run("document.body.innerText")
    for text in ("demand, truth", "forecast bought", "considered in step 3", "credits 48,499"):
        assert text in shown
    browser.click(".plans input")
    plans = browser.run("[...document.querySelectorAll('#chart path[data-plan]')].map((path) => path.dataset.plan)")
    assert plans == ["oracle", "committed", "p2 scripted"]
    browser.open(page.as_uri() + "#episode=nowhere&policy=careful")
    assert "No such episode" in browser.run("document.body.innerText")


def test_an_episode_is_found_in_its_chunk(
    browser: Browser, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "_CHUNK", 30_000)
    path = write_html(report, tmp_path / "page.html", LOADED, POOL).path
    data = held(path)
    last = data["overview"]["transcripts"]["keys"][-1]
    assert last[3] >= 3
    parts = {"episode": data["tables"]["cases"]["id"][last[1]], "policy": report.results[last[0]].label, "step": "1"}
    browser.open(f"{path.as_uri()}#{urlencode(parts)}")
    browser.wait("document.querySelector('#step pre.prompt')")
    assert parts["episode"].split("-")[0] in browser.run("document.querySelector('#step').textContent")
    assert browser.errors == []


def test_sorting_and_filtering_the_list(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri() + "#view=episodes&sort=S&dir=desc")
    scores = numbers(column(browser, "episodes", 3))
    assert scores == sorted(scores, reverse=True)
    browser.run("(() => { const s = document.getElementById('filter-outcome'); s.value = 'invalid_submission';"
                "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert browser.run("document.getElementById('count').textContent") == "8 of 40 episodes"
    assert "outcome=invalid_submission" in browser.run("location.hash")


def test_markup_from_a_model_stays_text(opened: Browser, report: Report) -> None:
    name = next(result.label for result in report.results if "hostile" in result.label)
    assert name in column(opened, "ranking", 1)
    opened.run(f"location.hash = new URLSearchParams({{view: 'episodes', policy: {json.dumps(name)}}}).toString()")
    opened.wait("document.getElementById('main').dataset.view === 'episodes'")
    opened.click("#episodes tr.row")
    opened.wait("document.getElementById('main').dataset.view === 'episode' && document.querySelector('#step h3')")
    assert "<script>window.hacked" in opened.run("document.querySelector('#step pre.call').textContent")
    opened.press("ArrowRight")
    assert opened.run("document.querySelector('#step pre.response').textContent").startswith("</script><script>")
    assert opened.run("window.hacked") is None
    assert opened.run("document.querySelectorAll('main script, main img, main svg[onload]').length") == 0
    assert opened.errors == []


def test_the_policy_stops_scripts_that_are_not_the_pages(opened: Browser) -> None:
    opened.run(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 9';"
        "document.body.append(s); })()"
    )
    assert opened.run("window.hacked") is None


def test_nothing_but_the_page_is_loaded(opened: Browser, page: Path) -> None:
    for place in ("#view=episodes", "#episode=TEST00-2026-07-17-day_ahead&policy=careful"):
        opened.run(f"location.hash = {json.dumps(place)}")
        opened.wait(
            f"document.getElementById('main').dataset.view !== 'overview' && location.hash === {json.dumps(place)}"
        )
    assert {url.split("#")[0] for url in opened.requests} <= {page.as_uri(), "about:blank"}
    assert opened.errors == []


def test_theme_follows_the_system_and_the_button(opened: Browser) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert opened.run(colour) == "rgb(255, 255, 255)"
    opened.scheme("dark")
    dark = opened.run(colour)
    assert dark == "rgb(22, 24, 28)"
    opened.click("#theme")
    assert opened.run("document.getElementById('theme').textContent") == "Theme: light"
    assert opened.run(colour) == "rgb(255, 255, 255)"
    opened.scheme("light")
    opened.press("t")
    assert opened.run(colour) == dark
    opened.press("t")
    assert opened.run("document.getElementById('theme').textContent") == "Theme: system"


@pytest.mark.parametrize(
    "place", ["#view=overview", "#view=episodes", "#episode=TEST00-2026-07-17-day_ahead&policy=careful"]
)
def test_a_phone_of_360_pixels_needs_no_sideways_scrolling(browser: Browser, page: Path, place: str) -> None:
    browser.size(360, 740, phone=True)
    browser.open(page.as_uri() + place)
    assert browser.run("document.documentElement.scrollWidth") == 360
    assert browser.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
