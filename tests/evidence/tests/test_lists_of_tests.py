"""A repository's tests in lists: by failures, flakiness, time; of a file; and what flaky ones cost."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import case, ran, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

HORIZON = 120
LISTS = f"/api/ci/tests/{UPSTREAM}"


@pytest.fixture
async def runs(bot, github):
    """Three pushes with a test that fails each time, one that fails once, a flaky one, a slow one and a good one."""
    for number in range(3):
        files = {
            "a.xml": xml(
                case("test_add", "failed", message="3 != 4"),
                case("test_mul", "failed" if number == 1 else "passed"),
                case("test_div", "flaky"),
                case("test_slow", time="61.5"),
                case("test_100%", file="other.py", suite="TestOther", outcome="skipped"),
            )
        }
        await ran(github, files, conclusion="failure")
        await bot.settle(horizon=HORIZON)
        bot.clock.advance(3600)
        await github.push(UPSTREAM)


async def names(bot, query=""):
    status, answer = await bot.get(f"{LISTS}?{query}")
    assert status == 200, answer
    return [one["name"] for one in answer["tests"]]


async def test_lists_have_an_order_and_go_on_page_by_page(bot, runs):
    assert await names(bot) == ["test_add", "test_mul"]
    assert await names(bot, "sort=flaky") == ["test_div"]
    assert await names(bot, "sort=recent") == ["test_add", "test_div", "test_mul"]
    assert await names(bot, "sort=slow") == ["test_slow"]
    assert sorted(await names(bot, "sort=name")) == [
        "test_100%",
        "test_add",
        "test_div",
        "test_mul",
        "test_slow",
    ]
    _, answer = await bot.get(f"{LISTS}?limit=1")
    (first,) = answer["tests"]
    assert (first["failures"], first["flaky"], first["commits"], first["suite"]) == (3, 0, 3, "TestOps")
    for sort in ("failures", "flaky", "recent", "slow", "name"):
        whole, found, before = await names(bot, f"sort={sort}"), [], ""
        while True:
            _, answer = await bot.get(f"{LISTS}?sort={sort}&limit=1{before}")
            found += [one["name"] for one in answer["tests"]]
            if answer["next"] is None:
                break
            before = f"&before={answer['next']}"
        assert found == whole


@pytest.mark.logic
async def test_lists_are_narrowed(bot, runs):
    for query, found in (
        ("q=mul", ["test_mul"]),
        ("q=MUL+testops", ["test_mul"]),
        ("q=100%25&sort=name", ["test_100%"]),
        ("q=%25", []),
        ("file=other.py&sort=name", ["test_100%"]),
        ("suite=TestOther", []),
        ("state=broken", ["test_add"]),
        ("state=quarantined", []),
        ("env=linux+cuda+default", ["test_add", "test_mul"]),
        ("env=mars", []),
        ("days=400", ["test_add", "test_mul"]),
    ):
        assert await names(bot, query) == found, query
    for query, status in (
        ("sort=best", 400),
        ("before=x", 400),
        ("days=0", 400),
        ("state=odd", 400),
        ("backend=org/nobody", 404),
    ):
        assert (await bot.get(f"{LISTS}?{query}"))[0] == status, query


@pytest.mark.logic
async def test_tests_that_trusted_runs_no_longer_have_are_gone(bot, github, runs):
    assert await names(bot, "state=gone") == []
    bot.clock.advance(10 * 86_400)
    assert await names(bot, "state=gone") == []  # no run at all: that says nothing
    await ran(github, {"a.xml": xml(case("test_add"))})
    await bot.settle(horizon=HORIZON)
    gone = ["test_100%", "test_div", "test_mul", "test_slow"]
    assert sorted(await names(bot, "state=gone")) == gone
    assert await names(bot, "state=gone&q=mul&sort=failures") == ["test_mul"]
    assert await names(bot, "state=gone&days=30") == []


@SQLITE
async def test_the_pages_show_the_same(bot, runs):
    status, page = await bot.get(f"/{UPSTREAM}/tests?q=test_m")
    assert status == 200
    assert "test_mul" in page
    assert "test_add" not in page
    assert 'value="test_m"' in page
    for sort in ("flaky", "recent", "slow", "name"):
        assert (await bot.get(f"/{UPSTREAM}/tests?sort={sort}"))[0] == 200
    status, page = await bot.get(f"/{UPSTREAM}/tests?q=nothing-of-that-name")
    assert "No test of that kind failed" in page
    status, page = await bot.get(f"/{UPSTREAM}/tests/file/test_ops.py")
    assert status == 200
    assert "4 tests in 1 suite" in page
    assert "test_mul" in page
    assert (await bot.get(f"/{UPSTREAM}/tests/file/none.py"))[0] == 404
    status, page = await bot.get(f"/{UPSTREAM}/flaky")
    assert status == 200
    assert "test_div" in page
    assert "test_add" not in page


@pytest.mark.logic
async def test_lists_say_how_often_tests_ran_in_trusted_runs_and_how_long_they_took(bot, github, runs):
    fork = github.add_repo("someone/pytorch", install=[])
    files = {"a.xml": xml(case("test_mul", time="9"))}
    await ran(github, files, event="pull_request", head_repo=fork)
    await bot.settle(horizon=HORIZON)
    _, answer = await bot.get(f"{LISTS}?sort=name")
    by_name = {one["name"]: one for one in answer["tests"]}
    wanted = ("runs", "passed", "skipped", "average_ms", "pass_rate")
    assert [by_name["test_mul"][name] for name in wanted] == [3, 2, 0, 250, 2 / 3]
    assert [by_name["test_100%"][name] for name in wanted] == [3, 0, 3, None, None]
    assert [by_name["test_slow"][name] for name in wanted] == [3, 3, 0, 61_500, 1.0]
    assert answer["counted_days"] == 7
    _, elsewhere = await bot.get(f"{LISTS}?sort=name&env=nowhere")
    assert {one["runs"] for one in elsewhere["tests"]} <= {0}
    _, page = await bot.get(f"/{UPSTREAM}/tests?q=mul")
    assert "66.7 %" in page
    assert "sort=flaky" in page


@pytest.mark.logic
async def test_json_of_tests_is_not_sent_again_to_who_has_it(bot, runs):
    async with bot.http.get(bot.url + LISTS) as first:
        tag = first.headers["ETag"]
    async with bot.http.get(bot.url + LISTS, headers={"If-None-Match": tag}) as again:
        assert (again.status, await again.read()) == (304, b"")
    async with bot.http.get(f"{bot.url}{LISTS}?days=0", headers={"If-None-Match": tag}) as refused:
        assert refused.status == 400
        assert "ETag" not in refused.headers
