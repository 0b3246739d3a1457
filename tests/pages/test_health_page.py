"""Health and levels: backends that turned red or fell silent, and who is ready for promotion or demotion."""

import re

import pytest

from bot.core.json_fields import iso_time
from tests.harness import ALLOWLIST, L1, L2, L3, L4, UPSTREAM
from tests.pages.page_checks import add_job, links, page_text
from tests.serving import SQLITE
from tests.sums import count_changed

HOUR = 3_600


async def ran(bot, repo, *conclusions, hours_ago):
    """Runs that a backend reported some hours ago."""
    at = bot.clock.now() - hours_ago * HOUR * 1000
    for conclusion in conclusions:
        await add_job(
            bot, downstream_repo=repo, conclusion=conclusion, run_id=f"{repo}{at}", received_at=at, updated_at=at,
            job_name=f"job {len(await bot.rows('oot_workflow_job'))}",
        )  # fmt: skip


async def of(bot, repo, path="/api/oot/summary"):
    """One backend as the JSON behind the page tells it."""
    _, body = await bot.get(path)
    return next(one for one in body["backends"] if one["repo"] == repo)


@SQLITE
async def test_what_turned_red_or_green_since_yesterday_comes_first(bot):
    good, bad = ["success"] * 9, ["failure"] * 9
    past = {L4: good, L3: bad, L2: bad, "org/amber": [*good[:8], "failure"], "org/gone": good, "org/new": []}
    today = {L4: bad, L3: good, L2: bad, "org/amber": bad, "org/gone": [], "org/new": bad}
    for repo, conclusions in past.items():
        await ran(bot, repo, *conclusions, hours_ago=60)
    for repo, conclusions in today.items():
        await ran(bot, repo, *conclusions, hours_ago=5)
    _, body = await bot.get("/api/oot/summary")
    turned = {one["repo"]: one["turned"] for one in body["backends"] if one["turned"]}
    assert turned == {L4: "red", "org/amber": "red", L3: "green"}
    text = await page_text(bot, "/oot")
    assert text.index("Newly red 2") < text.index("Newly green 1") < text.index("L4 Blocking")
    assert "The last 24 hours against the week before" in text
    assert "Newly" not in await page_text(bot, "/oot?q=l2")
    bot.clock.advance(25 * HOUR)  # nobody ran since
    assert "Newly" not in await page_text(bot, "/oot")


@SQLITE
async def test_each_of_thirty_days_is_a_cell_with_its_rate_in_words(bot):
    bot.clock.advance(12 * HOUR)
    for ago, conclusions in {0: ["success"], 2: ["failure"], 29: ["success"] * 9 + ["failure"]}.items():
        await ran(bot, L2, *conclusions, hours_ago=24 * ago)
    page = (await bot.get("/oot?level=2"))[1]
    days = re.findall(r'<b class=(\w+) title="([^"]*)">(.)</b>', page)
    assert len(days) == 31
    shown = {31 - at: (tone, title.split(": ")[1], sign) for at, (tone, title, sign) in enumerate(days)}
    assert (shown[1], shown[3]) == (("good", "100 %", "✓"), ("bad", "0 %", "✕"))
    assert (shown[30], shown[2]) == (("warn", "90 %", "!"), ("idle", "no data", "·"))
    assert days[-1][1].startswith(iso_time(bot.clock.now())[:10])


class TestOrder:
    """`?sort=` and what it may be."""

    async def names(self, bot, query=""):
        return [one["repo"] for one in (await bot.get(f"/api/oot/summary{query}"))[1]["backends"]]

    @SQLITE
    async def test_a_column_sorts_all_levels_together_and_a_dash_turns_it_round(self, bot):
        for repo, runs in ((L4, 1), (L3, 3), (L2, 2)):
            await ran(bot, repo, *["success"] * runs, hours_ago=2)
        assert [one for one in await self.names(bot, "?sort=runs") if one != L1] == [L3, L2, L4]
        assert [one for one in await self.names(bot, "?sort=-runs") if one != L1] == [L4, L2, L3]
        assert await self.names(bot, "?sort=name") == [L3, L2, L4, L1]  # npu, org/l2-sim, tpu, watch/l1
        text = await page_text(bot, "/oot?sort=runs")
        assert "L4 Blocking" not in text
        assert text.index("L3 npu") < text.index(f"L2 {L2}") < text.index("L4 tpu")
        page = (await bot.get("/oot?sort=runs"))[1]
        assert 'aria-sort="descending"><a href="/oot?days=30&sort=-runs">Runs</a>' in page
        assert 'aria-sort="ascending"' in (await bot.get("/oot?sort=-runs"))[1]

    @SQLITE
    async def test_who_has_no_value_comes_last_in_both_directions(self, bot):
        await ran(bot, L3, "success", hours_ago=2)
        for query in ("?sort=queue", "?sort=-queue", "?sort=last_report", "?sort=pass_rate"):
            assert (await self.names(bot, query))[0] == L3

    @SQLITE
    @pytest.mark.parametrize("column", ["speed", "--runs", "-", "runs,failed", "x" * 5_000, "runs\u202e"])
    async def test_an_unknown_column_is_refused_naming_the_known(self, bot, column):
        for path in ("/api/oot/summary", "/oot"):
            status, answer = await bot.get(path, params={"sort": column})
            assert status == 400
            assert "sort must be one of name, pass_rate, runs, failed" in str(answer)


class TestOnCall:
    """`?oncall=` on every page with backends."""

    @SQLITE
    @pytest.mark.parametrize("login", ["alice", "@Alice", "ALICE"])
    async def test_only_the_backends_of_one_person(self, bot, login):
        for path in ("/api/oot/summary", "/api/oot/levels"):
            _, body = await bot.get(path, params={"oncall": login})
            assert [one["repo"] for one in body["backends"]] == [L2]
        text = await page_text(bot, "/oot", params={"oncall": login})
        assert L2 in text
        assert L4 not in text
        assert "that alice is on call for" in text

    @SQLITE
    async def test_of_nobody_known_it_is_none(self, bot):
        _, body = await bot.get("/api/oot/summary?oncall=mallory")
        assert body["backends"] == []
        assert "No backend matches" in await page_text(bot, "/oot?oncall=mallory")

    @SQLITE
    @pytest.mark.parametrize("login", ["a b", "../x", "<b>", "a" * 200])
    async def test_what_is_no_name_is_refused(self, bot, login):
        for path in ("/oot", "/oot/levels", "/oot/metrics", "/api/oot/summary"):
            status, answer = await bot.get(path, params={"oncall": login})
            assert status == 400, path
            assert "oncall must be" in str(answer)


@SQLITE
@pytest.mark.parametrize(("hours_ago", "turned"), [(2, "red"), (23, "red"), (25, ""), (8 * 24 + 2, "")])
async def test_the_last_24_hours_are_held_against_the_week_before(bot, hours_ago, turned):
    """A failure, and a success 50 hours before it: only where one is in the day and the other in the week."""
    await ran(bot, L4, "failure", hours_ago=hours_ago)
    await ran(bot, L4, "success", hours_ago=hours_ago + 50)
    assert ((await of(bot, L4))["turned"] or "") == turned


@SQLITE
async def test_who_has_not_been_heard_of_for_36_hours_is_marked_however_long_ago_that_was(bot):
    await add_job(bot)
    await count_changed(bot.context)
    for hours, silent in ((35, ""), (2, "37 h"), (70 * 24, "71 d 13 h")):
        bot.clock.advance(hours * HOUR)
        assert (await of(bot, L4))["stale"] is bool(silent)
        text = await page_text(bot, "/oot")
        mine = text[text.index("L4 Blocking") : text.index("L3 Check runs")]
        assert f"! silent for {silent}" in mine or (not silent and "silent" not in mine)
        assert "no data yet" not in mine
    text = await page_text(bot, f"/oot/{L4}")
    assert "! silent for 71 d 13 h" in text
    assert "Last report 71 d ago" in text
    assert "Values" not in text  # no charts of nothing


@SQLITE
async def test_who_is_asked_and_does_not_answer_is_still_marked_silent(bot, github):
    await add_job(bot)
    await count_changed(bot.context)
    bot.clock.advance(40 * 24 * HOUR)
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.wait(30 * HOUR)  # nobody answered, and nobody is expected to any more
    assert (await of(bot, L4))["stale"] is True
    for path in ("/oot", f"/oot/{L4}"):
        text = await page_text(bot, path)
        assert "! silent for 41 d" in text
    _, body = await bot.get(f"/api/oot/backends/{L4}")
    assert body["backend"]["stale"] is True


@pytest.mark.logic
async def test_open_pull_requests_wait_for_who_has_not_answered_on_their_newest_commit(bot, github):
    pulls = []
    for _ in range(3):
        pulls.append(await github.open_pull(UPSTREAM, author="octocat"))
        await bot.settle()

    async def waiting():
        return (await of(bot, L4))["waiting"]

    assert await waiting() == 3
    await bot.report(bot.dispatch(L4), status="in_progress")
    assert await waiting() == 3
    await bot.report(bot.dispatch(L4), conclusion="failure")
    assert await waiting() == 2
    assert "2 open pull requests waiting" in await page_text(bot, f"/oot/{L4}")
    await github.push_commit(pulls[-1])  # its answer was about the commit before
    await bot.settle()
    assert await waiting() == 3
    await github.close(pulls[0])
    await bot.settle()
    assert await waiting() == 2


@SQLITE
async def test_every_window_counts_what_is_in_it_and_the_line_beside_shows_30_days(bot):
    for number, days in enumerate((0.2, 3, 20, 80)):
        conclusion = "failure" if number == 2 else "success"
        await ran(bot, L4, conclusion, hours_ago=round(days * 24))
    page = (await bot.get("/oot"))[1]
    assert re.findall(r'href="/oot\?days=(\d+)"', page)[:4] == ["1", "7", "30", "90"]
    assert 'aria-label="pass rate by day: lowest 0 %, last 100 %"' in page
    for days, runs in ((1, 1), (7, 2), (30, 3), (90, 4)):
        assert (await of(bot, L4, f"/api/oot/summary?days={days}"))["runs"] == runs
    text = await page_text(bot, "/oot")
    assert re.search(r"✕ 66.7 % [·✓✕ ]+ 3 1 0 0 10 min 10 min 20 s 20 s 0 dave 5 h ago", text)


@SQLITE
async def test_behind_the_last_page_of_metrics_is_said_so_and_the_way_back(bot):
    for number in range(8):
        await add_job(bot, downstream_repo=f"lab/chip-{number}", run_id=str(number))
    path = "/oot/metrics?days=30&from=60"
    text = await page_text(bot, path)
    assert "There are no more backends" in text
    assert "60 to" not in text
    (back,) = links((await bot.get(path))[1], "&from=")
    assert "lab/chip-7" in await page_text(bot, back)


DAY = 86_400


async def judged(bot, repo):
    body = (await bot.get("/api/oot/levels"))[1]
    return next(one for one in body["backends"] if one["repo"] == repo)


async def days_of_results(bot, repo, count, *, conclusion="success", level=2, **changes):
    for number in range(count):
        for job in ("build", "test"):
            await add_job(bot, downstream_repo=repo, downstream_repo_level=level, job_name=job, conclusion=conclusion,
                      run_id=f"{bot.clock.now()}{number}", **changes)  # fmt: skip
        bot.clock.advance(DAY)


@pytest.mark.logic
async def test_a_month_of_good_results_makes_a_backend_ready(bot):
    await days_of_results(bot, L2, 31)
    one = await judged(bot, L2)
    assert {measure["name"]: measure["word"] for measure in one["measures"]} == {
        "time at L2": "meets", "days with data": "meets", "pass rate": "meets", "timeout rate": "meets",
        "runs over 3 h": "meets", "median queue": "meets",
    }  # fmt: skip
    assert (one["advice"], one["promotion"], one["demotion"]) == ("ready for L3", "meets", "meets")
    assert "ready for L3" in await page_text(bot, "/oot/levels")


@pytest.mark.logic
async def test_what_misses_is_named(bot):
    await days_of_results(bot, L3, 8, conclusion="timed_out", level=3)
    one = await judged(bot, L3)
    assert one["advice"] == "demotion to L2 is due: pass rate, timeout rate"
    await days_of_results(bot, L4, 8, level=4, execution_time=4 * 3600.0)
    assert (await judged(bot, L4))["advice"] == "demotion to L3 is due: median end to end"
    text = await page_text(bot, "/oot/levels?q=tpu")
    assert "Promotion: 30 days Demotion: 7 days" in text
    assert "✕ demotion to L3 is due: median end to end" in text
    assert "✓ 100 % meets ✓ 0 % meets ✕ 4 h misses" in text


@pytest.mark.logic
async def test_a_bad_first_day_is_no_reason_to_go_down(bot):
    await days_of_results(bot, L3, 6, conclusion="timed_out", level=3)
    one = await judged(bot, L3)
    assert one["demotion"] == "unknown"
    assert one["advice"].startswith("not ready for L4: ")
    await days_of_results(bot, L3, 1, conclusion="timed_out", level=3)
    assert (await judged(bot, L3))["advice"] == "demotion to L2 is due: pass rate, timeout rate"


@pytest.mark.logic
async def test_the_last_days_are_those_of_the_summary(bot):
    for conclusion in ("failure", *["success"] * 5):
        await days_of_results(bot, L4, 1, conclusion=conclusion, level=4)
    for back in range(9):
        measured = (await judged(bot, L4))["demotion_measures"][0]["value"]
        _, body = await bot.get("/api/oot/summary?days=7")
        shown = next(one for one in body["backends"] if one["repo"] == L4)
        assert measured == shown["pass_rate"], back
        bot.clock.advance(DAY // 3)


@pytest.mark.logic
async def test_nothing_known_is_unknown_not_good(bot):
    one = await judged(bot, L2)
    words = {measure["name"]: measure["word"] for measure in one["measures"]}
    assert words["pass rate"] == words["timeout rate"] == words["median queue"] == "unknown"
    assert one["promotion"] == "misses"
    assert one["demotion"] == "unknown"


@pytest.mark.logic
async def test_time_at_a_level_begins_when_the_allowlist_changes_it(bot, tmp_path):
    began = (await judged(bot, L2))["since"]
    await bot.wait(3 * DAY)
    (tmp_path / "allowlist.yml").write_text(ALLOWLIST.replace(f'{{{L2}: "alice, bob"}}', "org/other"))
    await bot.wait(600)
    (tmp_path / "allowlist.yml").write_text(ALLOWLIST)
    await bot.wait(600)
    assert (await judged(bot, L2))["since"] > began
    assert (await judged(bot, L4))["since"] == began
