"""Do all pages of a repository have the same bar, with what there is to show, and say where one is?"""

import re

import pytest

from bot.features import FEATURES
from tests.harness import L3, L4, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.pages.reading import said_to_be

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
