"""The bar of a repository's pages, the state in their titles and icons, charts, and pages a browser has already."""

import re

import pytest

from bot.core.text import duration, percent
from bot.features import FEATURES
from bot.web import charts, html
from tests.harness import L2, L3, L4, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.pages.page_checks import add_job
from tests.pages.reading import said_to_be
from tests.serving import SQLITE

HOME = f"/{UPSTREAM}"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


def bar(page, label):
    """The links of a bar by their words, and the words of the current one."""
    inside = page.partition(f'aria-label="{label}"')[2].partition("</nav>")[0]
    found = re.findall(r'<a href="([^"]+)"( aria-current="\w+")?>(?:<bdi>)?([^<]+)', inside)
    return {words: path for path, _, words in found}, [words for _, current, words in found if current]


async def views(bot, path, repo=UPSTREAM):
    status, page = await bot.get(path)
    assert status == 200, path
    return bar(page, f"Views of {repo}")


@pytest.mark.logic
async def test_a_repository_has_one_bar_on_all_its_pages_with_what_there_is(bot, pull):
    only, here = await views(bot, f"{HOME}/pull/1")
    assert only == {UPSTREAM: HOME, "Pull requests": f"{HOME}/pulls"}
    assert here == ["Pull requests"]
    await deliver(bot, push(bot, "A"), job(bot, "linux / build", "A"))
    await bot.wait(120)
    shown, here = await views(bot, HOME)
    assert list(shown) == [UPSTREAM, "Grid", "Pull requests", "Runners", "CI metrics", "Reliability"]
    assert here == [UPSTREAM]
    for words, path in shown.items():
        assert await views(bot, path) == (shown, [words])


@pytest.mark.logic
async def test_a_backend_has_its_health_and_those_of_all_have_theirs(bot, pull):
    await bot.report(bot.dispatch(L4))
    shown, here = await views(bot, f"/oot/{L4}", L4)
    assert shown["Health"] == f"/oot/{L4}"
    assert here == ["Health"]
    page = (await bot.get("/oot/metrics"))[1]
    assert bar(page, "Backends")[1] == ["Backend metrics"]
    assert bar(page, "Pages")[1] == ["Backends"]
    assert "Views of" not in page
    assert bar((await bot.get(f"/oot/{L3}"))[1], "Backends") == ({}, [])


@pytest.mark.logic
async def test_no_two_pages_of_a_bar_have_one_name_and_metrics_have_two(bot):
    entries = [one for feature in FEATURES for one in feature.navigation]
    names = [(one.bar, one.label) for one in entries]
    assert len(names) == len(set(names))
    assert [one.label for one in entries if "metrics" in one.label] == ["CI metrics", "Backend metrics"]
    assert "Metrics" not in {label for _, label in names}


@pytest.mark.logic
async def test_a_page_that_is_not_there_has_no_bar_of_a_repository(bot, github, pull):
    await said_to_be(bot, github, private=True)
    _, page = await bot.get(f"{HOME}/pull/1", headers={"Accept": "text/html"})
    assert "Views of" not in page
    assert bar(page, "Pages")[0]


ICON = re.compile(r'<link rel="icon" href="([^"]+)"')


async def tab_of(bot, path):
    """The title of a page, and the colour of its icon."""
    _, page = await bot.get(path)
    title = re.search(r"<title>(.*?)</title>", page)[1]
    async with bot.http.get(bot.url + ICON.search(page)[1].replace("&amp;", "&")) as answer:
        assert answer.headers["Content-Type"].startswith("image/svg+xml")
        return title, re.search(r'fill="(#\w+)"', await answer.text())[1]


@SQLITE
async def test_a_backend_is_green_or_red_in_its_tab(bot):
    await add_job(bot, downstream_repo=L2)
    await add_job(bot, downstream_repo=L4, conclusion="failure")
    assert await tab_of(bot, f"/oot/{L2}") == ("org/l2-sim · ootbot", "#1b6e3a")
    assert await tab_of(bot, f"/oot/{L4}") == ("✕ tpu · ootbot", "#b3261e")
    assert await tab_of(bot, "/red") == ("✕ 1 red · ootbot", "#b3261e")
    assert (await tab_of(bot, "/api"))[1] == "#24577a"  # a page without a state


@SQLITE
@pytest.mark.parametrize("state", ["", "pink", "bad&x=1", '"><script>', "a" * 3_000])
async def test_the_icon_is_always_one_of_ours(bot, state):
    async with bot.http.get(f"{bot.url}/static/favicon.svg", params={"state": state}) as answer:
        assert answer.status == 200
        text = await answer.text()
    assert text.startswith("<svg")
    assert "script" not in text


@SQLITE
async def test_ages_and_times_say_what_they_mean(bot):
    await add_job(bot, downstream_repo=L2)
    for path in ("/oot", f"/oot/{L2}", "/red", f"/hud/{UPSTREAM}/main", "/oot/levels"):
        _, page = await bot.get(path)
        times = re.findall(r"<time([^>]*)>", page)
        assert times, path
        assert all(re.search(r'datetime="\d{4}-\d\d-\d\dT[\d:.]+Z"', one) for one in times), path


DAYS = [f"2026-11-{day:02}" for day in range(1, 31)]


def drawn(chart):
    return str(html.environment().get_template("charts.html").module.draw(chart))


def test_the_axes_have_labels_and_both_ends_among_them():
    chart = charts.chart("Pass rate", DAYS, [("rate", [0.5] * 30)], show=percent, top=1.0)
    assert [label for _, label in chart.ticks] == ["0 %", "50 %", "100 %"]
    assert [mark.text for mark in chart.marks] == [DAYS[0], DAYS[7], DAYS[14], DAYS[22], DAYS[29]]
    assert [mark.anchor for mark in chart.marks] == ["start", "middle", "middle", "middle", "end"]
    assert (chart.marks[0].x, chart.marks[-1].x) == (0, 560)
    assert all(f">{mark.text}</text>" in drawn(chart) for mark in chart.marks)


def test_few_days_are_all_named_and_one_day_once():
    two = charts.chart("Runs", DAYS[:2], [("runs", [1, 2])], show=str)
    assert [mark.text for mark in two.marks] == DAYS[:2]
    assert [mark.text for mark in charts.chart("Runs", DAYS[:1], [("runs", [1])], show=str).marks] == DAYS[:1]
    assert charts.chart("Runs", [], [("runs", [])], show=str).empty


def test_times_have_round_ticks():
    chart = charts.chart("Queue", DAYS[:3], [("median", [10, 400, None])], show=duration, seconds=True)
    assert [label for _, label in chart.ticks] == ["0 s", "2 min", "4 min", "6 min", "8 min"]


def test_a_value_is_told_on_hover_and_in_the_table():
    page = drawn(charts.chart("Runs", DAYS[:3], [("runs", [1, None, 3])], show=lambda value: f"{value:g}"))
    assert re.findall(r"<title>([^<]*)</title>", page) == ["2026-11-01: runs 1", "2026-11-03: runs 3"]
    assert "<tr><th scope=row>2026-11-02</th><td>–" in page
    assert 'role="img" aria-label="Runs; the values are in the table below"' in page
    assert "<a " not in page


def test_a_point_and_its_line_in_the_table_lead_to_the_commits_of_the_day():
    links = charts.commits_of_days("org/repo", DAYS[:2], "release/2.1")
    assert links == [f"/hud/org/repo/release/2.1?on={day}" for day in DAYS[:2]]
    page = drawn(charts.chart("Runs", DAYS[:2], [("runs", [1, 2])], show=str, links=links))
    assert page.count(f'<a href="{links[0]}" tabindex=-1><circle') == 1
    assert f'<th scope=row><a href="{links[0]}">2026-11-01</a>' in page
    assert 'aria-hidden="true"' in page  # what it says, the table says with links to be reached by keyboard
    assert charts.commits_of_days("org/repo", DAYS[:1]) == ["/hud/org/repo?on=2026-11-01"]


def test_names_from_outside_are_text():
    page = drawn(charts.chart("<b>", ["<i>"], [("<u>", [1])], show=str, links=['/x"><script>']))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "<u>" not in page
    assert "<script>" not in page


@SQLITE
async def test_a_page_that_has_not_changed_keeps_its_scripts(bot):
    async with bot.http.get(bot.url + "/oot") as first:
        policy, etag = first.headers["Content-Security-Policy"], first.headers["ETag"]
        assert "script-src 'self'" in policy
    async with bot.http.get(bot.url + "/oot", headers={"If-None-Match": etag}) as again:
        assert (again.status, await again.read()) == (304, b"")
        assert again.headers["Content-Security-Policy"] == policy
