"""What is red now: broken jobs of branches, red and silent backends, long queues, and whose they are."""

import pytest

from bot.pages.grid import broken_now, grid
from bot.web.blocks import BlockLine, GridNotes
from tests.harness import L2, L3, L4, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, repository
from tests.pages.page_checks import add_job, check_escaped, page_text
from tests.pages.reading import ADMIN
from tests.serving import SQLITE

HOUR = 3_600
NPU = "backends / npu / CI / build"


async def red(bot, query="", **options):
    status, body = await bot.get(f"/api/red{query}", **options)
    assert status == 200, body
    return body


async def a_broken_branch(bot):
    """`lint` passes on all four commits, `build` and npu's nightly failed on the last three."""
    await deliver(
        bot,
        *(push(bot, name, parent=before, at=at) for at, (before, name) in enumerate(zip([None, *"ABC"], "ABCD", strict=True))),
        *(job(bot, "lint", name) for name in "ABCD"),
        *(job(bot, "build", name, "success" if name == "A" else "failure") for name in "ABCD"),
    )  # fmt: skip
    for name in "ABCD":
        await add_job(bot, pr_number=None, event_type="nightly", head_sha=COMMITS[name], downstream_repo=L3, delivery_id=name,
                      downstream_repo_level=3, conclusion="success" if name == "A" else "failure")  # fmt: skip


async def ran(bot, repo, *conclusions, hours_ago, level=4):
    """Runs that a backend reported some hours ago, each on a commit of its own."""
    at = bot.clock.now() - round(hours_ago * HOUR * 1000)
    for number, conclusion in enumerate(conclusions):
        await add_job(bot, downstream_repo=repo, conclusion=conclusion, delivery_id=f"{at}{number}", run_id=f"{at}{number}",
                      head_sha=f"{number:x}" * 40, received_at=at + number, updated_at=at, downstream_repo_level=level)  # fmt: skip


@SQLITE
async def test_where_nothing_is_known_nothing_is_red(bot):
    found = await red(bot)
    assert (found["count"], found["broken"], found["red"], found["silent"], found["queues"]) == (
        0,
        [],
        [],
        [],
        [],
    )
    assert "Nothing is red" in await page_text(bot, "/red")


@pytest.mark.logic
async def test_broken_jobs_name_commits_who_is_on_call_and_what_blocks_comes_first(bot):
    await a_broken_branch(bot)
    found = await red(bot)
    build, npu = found["broken"]
    assert (build["name"], build["blocks"], build["backend"], build["oncalls"]) == (
        "pull / build",
        True,
        None,
        [],
    )
    assert (npu["name"], npu["blocks"], npu["backend"], npu["oncalls"]) == (NPU, False, "npu", ["carol"])
    for one in (build, npu):
        assert (one["first_bad"], one["last_good"], one["failures"]) == (COMMITS["B"], COMMITS["A"], 3)
        assert (await bot.get(one["url"]))[0] == 200
    assert found["blocks"]
    (branch,) = found["branches"]
    assert (branch["state"], branch["since"], branch["blocking"], branch["watched"]) == (
        "broken",
        COMMITS["B"],
        1,
        1,
    )
    text = await page_text(bot, "/red")
    assert text.index("main is broken since bb00000") < text.index("blocks merging") < text.index(NPU)
    check_escaped((await bot.get("/red"))[1])


@pytest.mark.logic
async def test_a_red_backend_says_since_when_and_where_it_passed_last(bot):
    await ran(bot, L4, *["success"] * 9, hours_ago=60)
    await ran(bot, L4, "success", "failure", "failure", hours_ago=5)
    (one,) = (await red(bot))["red"]
    assert (one["repo"], one["new"], one["failing"], one["oncalls"]) == (L4, True, 2, ["dave"])
    assert (one["first_bad"], one["last_good"]) == ("1" * 40, "0" * 40)
    text = await page_text(bot, "/red")
    assert "newly red" in text
    assert "5 h ago" in text


@SQLITE
async def test_one_that_passes_on_and_off_is_red_without_a_beginning(bot):
    await ran(bot, L4, "failure", "failure", "failure", "success", hours_ago=5)
    (one,) = (await red(bot))["red"]
    assert (one["new"], one["failing"], one["since"], one["last_good"]) == (False, 0, None, "3" * 40)
    assert "on and off" in await page_text(bot, "/red")


@SQLITE
async def test_a_run_with_a_failed_job_failed_however_many_passed(bot):
    await ran(bot, L4, "success", hours_ago=6)
    await ran(bot, L4, "failure", hours_ago=5)
    at = bot.clock.now() - 5 * HOUR * 1000
    for name in "xyz":
        await add_job(
            bot, delivery_id=f"{at}0", run_id=f"{at}0", head_sha="0" * 40, job_name=name, received_at=at
        )
    await ran(bot, L4, "failure", "cancelled", "skipped", hours_ago=4)
    await ran(bot, L4, "failure", "failure", hours_ago=3)
    (one,) = (await red(bot))["red"]
    assert one["failing"] == 4  # neither passes nor failures are those that were cancelled or skipped


@SQLITE
async def test_a_silent_backend_is_listed_with_its_last_report(bot):
    await ran(bot, L2, "success", hours_ago=40, level=2)
    (one,) = (await red(bot))["silent"]
    assert (one["repo"], one["oncalls"]) == (L2, ["alice", "bob"])
    assert "40 h ago" in await page_text(bot, "/red")


@pytest.mark.logic
async def test_a_queue_is_long_where_something_waits_longer_than_nine_of_ten_did(bot, github):
    await ran(bot, L4, *["success"] * 10, hours_ago=3)  # each began after 20 seconds
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert (await red(bot))["queues"] == []
    bot.clock.advance(60)
    (one,) = (await red(bot))["queues"]
    assert (one["name"], one["repo"], one["of_backend"], one["waiting"]) == ("tpu", L4, True, 1)
    text = await page_text(bot, one["url"])
    assert "longer than nine of ten" in text
    await bot.report(bot.dispatch(L4), status="in_progress")
    assert (await red(bot))["queues"] == []


class TestWhose:
    """`?oncall=` and `?repo=`."""

    @SQLITE
    async def test_one_person_sees_their_backends_only(self, bot):
        await a_broken_branch(bot)
        await ran(bot, L2, "success", hours_ago=40, level=2)
        await ran(bot, L4, "failure", hours_ago=3)
        carol = await red(bot, "?oncall=Carol")
        assert ([one["name"] for one in carol["broken"]], carol["silent"]) == ([NPU], [])
        assert [one["repo"] for one in (await red(bot, "?oncall=@dave"))["red"]] == [L4]
        assert [one["repo"] for one in (await red(bot, "?oncall=alice"))["silent"]] == [L2]
        nobody = await red(bot, "?oncall=mallory")
        assert nobody["count"] == 0
        assert "Nothing is red among what mallory is on call for" in await page_text(
            bot, "/red?oncall=mallory"
        )

    @SQLITE
    async def test_another_repository_has_no_broken_jobs_here(self, bot):
        await a_broken_branch(bot)
        assert (await red(bot, "?repo=some/other"))["broken"] == []
        assert len((await red(bot, f"?repo={UPSTREAM.upper()}"))["broken"]) == 2

    @SQLITE
    @pytest.mark.parametrize("query", ["?oncall=a%20b", "?oncall=%3Cb%3E", "?refresh=1"])
    async def test_what_cannot_be_meant_is_refused(self, bot, query):
        assert (await bot.get(f"/red{query}"))[0] == 400


@SQLITE
async def test_a_private_upstream_is_for_the_administrator_alone(bot):
    await a_broken_branch(bot)
    now = repository(bot) | {"private": True, "updated_at": "2026-12-01T00:00:00Z"}
    await deliver(bot, ("repository", {"action": "privatized", "repository": now}))
    assert (await bot.get("/red"))[0] == 404
    assert (await bot.get("/api/red"))[0] == 404
    assert len((await red(bot, headers=ADMIN))["broken"]) == 2


async def search_for_culprit(tx, subject):
    """What a search for a culprit says of broken jobs."""
    assert NPU in subject.broken
    assert COMMITS["B"] in subject.shas
    line = BlockLine(text="<b>bisecting</b>: at most 2 more runs", url="/somewhere", tone="wait")
    return GridNotes(columns={NPU: (line,)})


@SQLITE
async def test_what_a_search_says_of_a_broken_job_stands_beside_it(bot, monkeypatch):
    for page in (broken_now, grid):
        monkeypatch.setattr(page, "mark_grid", search_for_culprit)
    await a_broken_branch(bot)
    notes = {one["name"]: one["notes"] for one in (await red(bot))["broken"]}
    assert notes == {"pull / build": [], NPU: ["<b>bisecting</b>: at most 2 more runs"]}
    for path in ("/red", f"/hud/{UPSTREAM}/main"):
        _, page = await bot.get(path)
        check_escaped(page)
        assert '<a href="/somewhere"><bdi>&lt;b&gt;bisecting&lt;/b&gt;: at most 2 more runs</bdi></a>' in page
