"""Pages in a real browser: light and dark, phone and desktop, by keyboard, with words for drawings."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path

import pytest
import pytest_asyncio

from tests import harness, shown_facts
from tests.browser import chromium, story
from tests.harness import L3, L4, UPSTREAM
from tests.walk import walk

pytestmark = [
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

FINDINGS = (Path(__file__).parent / "findings.js").read_text()
REACHABLE = "a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']"
EVERY = tuple((width, dark) for width in (390, 1440, 2560) for dark in (False, True))
SOME = ((390, False), (1440, True))
LOOKS = pytest.mark.parametrize(
    "looks", [pytest.param(SOME, id="some"), pytest.param(EVERY, id="every", marks=pytest.mark.nightly)]
)
LINK = re.compile(r'href="(/[^"#]*)')
OF_A_SHAPE = 2
ALIKE = 6  # pages of one kind that are compared
COMPARED = {  # of what the story's pages say in several places
    "last good", "commits that count", "Broken", "Flaky", "took", "Failed", "Runs", "pass rate", "upstream's jobs passed",
    "full result", "gate", "mark", "jobs", "queued", "cpu avg", "memory avg", "gpu avg", "total of Failed",
}  # fmt: skip
PAGES = {
    "health": "/oot",
    "health-24h": "/oot?days=1&level=4",
    "wall": "/oot?refresh=60",
    "home": f"/{UPSTREAM}",
    "home-backend": f"/{L4}",
    "pulls": f"/{UPSTREAM}/pulls?state=all",
    "search": "/search?q=test",
    "search-none": "/search?q=nothing+of+that+name",
    "backend": f"/oot/{L4}",
    "backend-trunk": f"/oot/{L4}?tab=trunk&days=90",
    "health-sorted": "/oot?sort=-queue&days=7",
    "health-oncall": "/oot?oncall=frank",
    "red": "/red",
    "red-oncall": "/red?oncall=mallory",
    "dispatches": "/oot/dispatches",
    "backend-day": f"/oot/{L4}?on=2026-09-20",
    "grid-day": f"/hud/{UPSTREAM}/main?on=2026-09-20",
    "metrics": "/oot/metrics",
    "levels": "/oot/levels",
    "backend-silent": f"/oot/{story.UNINSTALLED}",
    "pull": f"/{UPSTREAM}/pull/4",
    "pull-many-commits": f"/{UPSTREAM}/pull/3",
    "unknown": f"/{UPSTREAM}/pull/99",
    "error": "/oot?days=0",
    "nowhere": "/oot/nowhere",
    "api": "/api",
    "grid": f"/hud/{UPSTREAM}/main",
    "grid-all": f"/hud/{UPSTREAM}/main?groups=0",
    "grid-failing": f"/hud/{UPSTREAM}/main?only=failing&shards=1",
    "grid-unknown-branch": f"/hud/{UPSTREAM}/release/2.1",
    "trunk-metrics": f"/{UPSTREAM}/metrics?days=30",
    "trunk-reliability": f"/{UPSTREAM}/reliability?days=30",
    "trunk-queue": f"/{UPSTREAM}/queue",
    "disabled": f"/{UPSTREAM}/disabled",
    "suggestions": f"/{UPSTREAM}/disabled/suggestions",
    "usage": f"/{UPSTREAM}/job/{story.MEASURED}/utilization",
    "usage-none": f"/{UPSTREAM}/job/{story.UNMEASURED}/utilization",
    "usage-refused": f"/{UPSTREAM}/job/{story.REFUSED}/utilization",
    "usage-run": f"/{UPSTREAM}/run/{story.MEASURED_RUN}/utilization",
    "usage-report": f"/{UPSTREAM}/utilization",
    "usage-report-runner": f"/{UPSTREAM}/utilization?by=runner&granularity=week&runs=others",
    "usage-report-none": f"/{L4}/utilization?days=1",
    "job": f"/{UPSTREAM}/job/{story.MEASURED}",
    "tests": f"/{UPSTREAM}/tests",
    "tests-slow": f"/{UPSTREAM}/tests?sort=slow",
    "tests-none": f"/{UPSTREAM}/tests?q=nothing+of+that+name",
    "tests-lost": f"/{UPSTREAM}/tests/lost",
    "tests-all": f"/{UPSTREAM}/tests?sort=name",
    "tests-file": f"/{UPSTREAM}/tests/file/test/test_streams.py",
    "flaky": f"/{UPSTREAM}/flaky",
    "backend-tests": f"/oot/{L3}/tests",
    "searches": f"/{UPSTREAM}/bisects",
    "search-over": f"/{UPSTREAM}/bisects/0123456789",
    "sign-in": "/admin",
}
EXPECTED = {PAGES["error"]: {400}, PAGES["nowhere"]: {404}, "/admin": {401}}  # of pages: their status
SIGNED_IN = {"admin": "/admin", "admin-tasks": "/admin/tasks", "admin-deliveries": "/admin/deliveries"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bot(tmp_path_factory, app_key, issuer_key):
    """A bot whose story is told once: these tests only look at its pages."""
    folder, clock = tmp_path_factory.mktemp("story"), harness.ManualClock()
    (folder / "allowlist.yml").write_text(story.ALLOWLIST)
    async with (
        harness.simulated_github(clock, app_key) as github,
        harness.signing_issuer(clock, issuer_key) as issuer,
    ):
        settings = harness.make_settings(
            github=github, issuer=issuer, app=github.app, folder=folder, of_features=story.OF_FEATURES
        )
        async with harness.running(
            settings, github=github, issuer=issuer, app=github.app, clock=clock
        ) as made:
            await story.tell(made, github)
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def tab():
    async with chromium.running() as made:
        yield made


async def addresses(bot):
    """The pages, with an open cell and a commit that only their content names."""
    page = (await bot.get(f"/oot/{L4}"))[1]
    cell = page.split("?cell=", 1)[1].split("#")[0]
    trunk = (await bot.get(f"/oot/{L4}?tab=trunk"))[1]
    commit = trunk.split(f"/{UPSTREAM}/commit/", 1)[1].split('"')[0]
    flake = await open_flake(bot)
    line = (await bot.get(f"/api/ci{PAGES['grid']}"))[1]["lines"][-1]["sha"]
    tests = await pages_of_tests(bot)
    found = tests | {
        "cell": f"/oot/{L4}?cell={cell}", "commit": f"/{UPSTREAM}/commit/{commit}", "grid-cell": flake,
        "grid-commit": f"/{UPSTREAM}/commit/{line}", "run": await run_with_jobs(bot), "search": await open_search(bot),
    }  # fmt: skip
    return PAGES | found


async def open_search(bot):
    """The page of the search that goes on."""
    _, answer = await bot.get(f"/api/ci/bisects/{UPSTREAM}")
    (identifier,) = [one["id"] for one in answer["searches"] if one["state"] in {"running", "waiting"}]
    return f"/{UPSTREAM}/bisects/{identifier}"


async def pages_of_tests(bot):
    """The pages that only their content names: of a commit's and a run's tests, of one test."""
    _, answer = await bot.get(f"/api/ci/parity/{L3}")
    commit = f"/{UPSTREAM}/commit/{answer['sha']}/tests"
    page = (await bot.get(commit))[1]
    base = page.split('href="?base=', 1)[1].split("#")[0]
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}")
    tests = {
        f"test-{number}": f"/{UPSTREAM}/test/{one['test']}" for number, one in enumerate(answer["tests"][:2])
    }
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}?sort=flaky")
    flaky = f"/{UPSTREAM}/test/{answer['tests'][0]['test']}"
    return tests | {"commit-tests": commit, "compared": f"{commit}?base={base}", "test-flaky": flaky}


async def run_with_jobs(bot):
    """A run that the pages of its jobs lead to, with its steps drawn."""
    body = (await bot.get(f"/api/ci{PAGES['grid']}"))[1]
    jobs = [cell["job"] for line in body["lines"] for cell in line["cells"].values() if cell["c"] == "X"]
    known = {row["id"] for row in await bot.rows("workflow_job")}  # a backend's id may be of digits, too
    job = next(job for job in jobs if job in known)
    page = (await bot.get(f"/{UPSTREAM}/job/{job}"))[1]
    run = page.split(f'href="/{UPSTREAM}/run/', 1)[1].split('"')[0]
    return f"/{UPSTREAM}/run/{run}"


async def open_flake(bot):
    """The grid with a cell open that passed on a second try."""
    page = (await bot.get(PAGES["grid"]))[1]
    return page.split('<td class=f><a href="', 1)[1].split("#")[0].replace("&amp;", "&")


async def sign_in(bot, tab):
    await tab.open(f"{bot.url}/admin")
    await tab.evaluate("document.querySelector('input[name=token]').value = 'an admin token of ours'")
    tab.loaded.clear()
    await tab.evaluate("document.querySelector('main form').submit()")
    await tab.loaded.wait()


async def check(bot, tab, pages, looks):
    """Return what troubles a reader; a page follows width and colours while it is open."""
    found = []
    for name, path in pages.items():
        await tab.look(width=looks[0][0], dark=looks[0][1])
        await tab.open(bot.url + path)
        for width, dark in looks:
            await tab.look(width=width, dark=dark)
            where = f"{name}, {width} px, {'dark' if dark else 'light'}"
            found += [f"{where}: {finding}" for finding in await tab.evaluate(FINDINGS)]
    return found


@LOOKS
async def test_pages_have_nothing_that_troubles_a_reader(bot, tab, looks):
    pages = await addresses(bot)
    found = await check(bot, tab, pages, looks)
    await sign_in(bot, tab)
    found += await check(bot, tab, SIGNED_IN, looks)
    assert found == [], "\n".join(found)
    ours = [said for said in tab.complaints if "the server responded with a status of" not in said]
    assert ours == []  # no error in the console, no violation of the policy


async def test_everything_can_be_reached_by_keyboard_in_order(bot, tab):
    await tab.look(width=1440, dark=False)
    for path in ("/oot", f"/{UPSTREAM}/pull/4", "/oot/levels"):
        await tab.open(bot.url + path)
        mark = f"""[...document.querySelectorAll({REACHABLE!r})].filter((one) => one.checkVisibility())
            .map((one, at) => one.dataset.at = at).length"""
        count = await tab.evaluate(mark)
        order = []
        for _ in range(min(count, 40)):
            await tab.press_tab()
            order.append(await tab.evaluate("Number(document.activeElement.dataset.at)"))
            ring = await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert ring != "none", f"{path}: no focus ring on element {order[-1]}"
        assert order == list(range(len(order))), path


@pytest.mark.nightly
async def test_without_javascript_the_same_is_shown(bot, tab):
    await tab.look(width=1440, dark=False)
    for path in (await addresses(bot)).values():
        seen = []
        for off in (False, True):
            await tab.call("Emulation.setScriptExecutionDisabled", value=off)
            await tab.open(bot.url + path)
            root = (await tab.call("DOM.getDocument", depth=0))["root"]["nodeId"]
            page = (await tab.call("DOM.getOuterHTML", nodeId=root))["outerHTML"]
            # times of day are the reader's own, with a script
            seen.append(re.sub(r"<time class=.clock[^<]*|<noscript>.*?</noscript>|<[^>]+>|\s", "", page))
        assert seen[0] == seen[1], path
        await tab.call("Emulation.setScriptExecutionDisabled", value=False)


async def test_the_widest_age_fits_its_column_of_the_health_page(bot, tab):
    await tab.look(width=1440, dark=False)
    await tab.open(f"{bot.url}/oot")
    clipped = await tab.evaluate("""[...document.querySelectorAll(".health td:last-child")].map((cell) => {
        cell.textContent = "54 min ago";
        const text = document.createRange();
        text.selectNodeContents(cell);
        return text.getBoundingClientRect().right - cell.closest(".scroll").getBoundingClientRect().right;
    }).filter((over) => over > -4)""")
    assert clipped == []


async def test_links_between_pages_lead_somewhere(bot):
    """Followed from every page of the story; of addresses that differ in numbers and hashes only, a few."""
    waiting = [*(await addresses(bot)).values()]
    seen, of_shape, lost = set(), Counter(), []
    while waiting:
        path = waiting.pop(0)
        shape = re.sub(r"[0-9a-f]{12,}|\d+", "#", path.partition("?")[0])
        if path in seen or of_shape[shape] >= OF_A_SHAPE:
            continue
        seen.add(path)
        of_shape[shape] += 1
        status, shown = await bot.get(path)
        if status not in EXPECTED.get(path, {200}) and "Look for it on GitHub" not in str(shown):
            lost.append((status, path))
        if isinstance(shown, str):
            waiting += [html.unescape(found) for found in LINK.findall(shown)]
    assert lost == [], "\n".join(map(str, lost))
    assert len(seen) > len(PAGES)


async def test_what_two_pages_show_is_the_same(bot):
    """Of the whole demo: tests/demo/test_month.py, by night."""
    start = (PAGES["home"], PAGES["grid"], "/failures", "/oot", "/oot/metrics", "/oot/levels")
    pages = await walk(bot.http, bot.url, start=start, alike=ALIKE)
    assert shown_facts.disagreements(pages) == {}
    assert COMPARED - shown_facts.compared(pages).keys() == set()
