"""The grid of a branch, through its JSON and its page."""

from __future__ import annotations

import itertools
import random
import resource
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.harness import L2, L3, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.pages.page_checks import add_job, check_escaped, page_text
from tests.serving import SQLITE
from tests.sums import count_changed

HUD = f"/hud/{UPSTREAM}/main"
API = f"/api/ci{HUD}"
TEST = "linux / test (default, {}, 2, linux.4xlarge)"
DAY = 24 * 60  # minutes; the first commit is of 2026-09-21
LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
WARM = 10  # requests until the program has what it keeps anyway
LARGE = r"([a-z0-9]{1,9}[-_/ ]?){1,20}(build|test|lint){2,9}x{%d}"  # some 2,000 steps


def example(bot):
    """The pushes and jobs of docs/ci.md."""
    first, second = TEST.format(1), TEST.format(2)
    return [
        push(bot, "A", at=0), push(bot, "B", parent="A", at=10), push(bot, "C", parent="B", at=20),
        push(bot, "D", parent="C", at=30),
        job(bot, first, "A", number=1), job(bot, second, "A", number=2),
        job(bot, first, "B", "failure", number=11), job(bot, first, "B", number=21, attempt=2),
        job(bot, second, "B", number=12),
        job(bot, first, "C", "failure", number=31), job(bot, second, "C", "cancelled", number=32),
        job(bot, second, "C", number=42, run=78),
        job(bot, first, "D", "failure", number=51), job(bot, second, "D", "", number=52),
    ]  # fmt: skip


def shown(body, at=0):
    return [line["cells"].get(str(at)) for line in body["lines"]]


@pytest.mark.logic
async def test_the_example_of_the_document_is_what_the_bot_shows(bot):
    await deliver(bot, *example(bot))
    status, body = await bot.get(API)
    assert status == 200
    assert body["columns"] == [
        {
            "name": "pull / linux / test (default)",
            "group": "Linux",
            "workflow": "pull",
            "blocking": True,
            "state": "suspect",
        }
    ]
    assert [line["sha"] for line in body["lines"]] == [COMMITS[name] for name in "DCBA"]
    assert shown(body) == [
        {"c": "X", "n": [1, 2], "job": 51},
        {"c": "X", "n": [1, 2], "job": 31},
        {"c": "F", "n": [1, 2], "job": 11},
        {"c": "O", "n": [2, 2], "job": 2},
    ]
    assert [line["verdict"] for line in body["lines"]] == ["red", "red", "green", "green"]
    assert [line["green_before"] for line in body["lines"]] == [COMMITS["B"], COMMITS["B"], None, None]
    _, page = await bot.get(f"/hud/{UPSTREAM}/main")
    assert f'/{UPSTREAM}/compare/{COMMITS["B"]}...{COMMITS["D"]}"' in page
    assert body["lines"][0]["title"] == "Change D (#68)"
    assert body["lines"][0]["pr"] == 68
    assert body["next"] is None


@SQLITE
async def test_any_order_of_the_deliveries_gives_the_same_json(bot, elsewhere):
    deliveries = [*example(bot), run(bot, "D", status="in_progress", conclusion=None)]
    await deliver(bot, *deliveries)
    expected = await text_of(bot)
    chance = random.Random(3)
    for _ in range(3):
        chance.shuffle(deliveries)
        for event, body in deliveries:
            await bot.send(event, body)  # each twice by now, too
        await bot.settle()
        assert await text_of(bot) == expected


async def text_of(bot):
    async with bot.http.get(f"{bot.url}{API}") as answer:
        return await answer.text()


@pytest.mark.logic
async def test_the_page_shows_lines_cells_and_what_is_broken(bot):
    await deliver(bot, *example(bot), push(bot, "E", parent="D", at=40))
    await deliver(
        bot, job(bot, TEST.format(1), "E", "failure", number=61), job(bot, TEST.format(2), "E", number=62)
    )
    status, page = await bot.get(HUD)
    assert status == 200
    check_escaped(page)
    text = await page_text(bot, HUD)
    assert "main is broken since cc00000" in text
    assert "1 blocking job is broken" in text
    assert "Broken, blocks merging 1" in text
    assert "3 failures in a row" in text
    assert "pull / linux / test (default) since" in text
    assert "#69 Change E octocat" in text
    assert 'href="/upstream/project/job' not in page  # cells are closed
    cell = page.partition('<td class=x><a href="')[2].partition("cell=")[2].partition("#")[0]
    opened = await page_text(bot, f"{HUD}?cell={cell}")
    assert "failure in 1 of 2 shards" in opened
    assert "(no name)" not in opened  # of who started a run: nobody has said
    # the cell; narrow screens have none, but the names of jobs that failed; and the box of what is broken
    assert page.count(f"cell={cell}#cell") == 3
    assert "61" in opened
    assert "That cell is not" in await page_text(bot, f"{HUD}?cell=ffffff.00")


@pytest.mark.logic
async def test_the_home_of_a_repository_is_its_default_branch(bot):
    await deliver(bot, *example(bot))
    async with bot.http.get(f"{bot.url}/hud/{UPSTREAM}", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, HUD)


@SQLITE
async def test_the_front_page_is_the_grid_once_pushes_are_known(bot):
    async def leads_to(path):
        async with bot.http.get(f"{bot.url}{path}", allow_redirects=False) as answer:
            assert answer.status == 302
            return answer.headers["Location"]

    assert await leads_to("/") == "/oot"
    assert await leads_to("/hud") == f"/hud/{UPSTREAM}"
    await deliver(bot, *example(bot))
    assert await leads_to("/") == HUD
    assert await leads_to("/hud") == HUD


@SQLITE
async def test_a_branch_with_slashes_and_one_nobody_heard_of(bot):
    await deliver(bot, *example(bot), push(bot, "E", branch="release/2.1"))
    assert (await bot.get(f"/api/ci/hud/{UPSTREAM}/release/2.1"))[1]["branch"] == "release/2.1"
    text = await page_text(bot, f"/hud/{UPSTREAM}/feature/none")
    assert "No commit of this branch is known" in text
    assert "release/2.1" in text
    for repo in ("nobody/nothing", "upstream/other"):
        assert (await bot.get(f"/api/ci/hud/{repo}/main"))[0] == 404
        assert (await bot.get(f"/hud/{repo}/main"))[0] == 404


@SQLITE
async def test_a_private_repository_is_answered_as_an_unknown_one(bot):
    await deliver(bot, *example(bot))
    _event, body = push(bot, "E")
    body["repository"] |= {"private": True}
    await bot.send("repository", {"action": "privatized", "repository": body["repository"]
                                  | {"updated_at": "2030-01-01T00:00:00Z"}})  # fmt: skip
    await bot.settle()
    for path in (API, HUD, f"/hud/{UPSTREAM}"):
        assert (await bot.get(path))[0] == 404


@SQLITE
async def test_lines_are_in_the_order_of_the_pushes_whatever_the_clocks_say(bot):
    await deliver(
        bot, push(bot, "A", at=50), push(bot, "B", parent="A", at=10), push(bot, "C", parent="B", at=30)
    )
    lines = (await bot.get(API))[1]["lines"]
    assert [line["sha"] for line in lines] == [COMMITS[name] for name in "CBA"]


@SQLITE
async def test_pages_of_lines_follow_one_another(bot):
    names = [f"{number:040x}" for number in range(1, 30)]
    await deliver(bot, *(push(bot, name, parent=parent, at=number) for number, (parent, name)
                      in enumerate(itertools.pairwise([None, *names]))))  # fmt: skip
    seen, before = [], ""
    while before is not None:
        body = (await bot.get(f"{API}?per=10" + (f"&before={before}" if before else "")))[1]
        seen += [line["sha"] for line in body["lines"]]
        before = body["next"]
    assert seen == names[::-1]
    assert (await bot.get(f"{API}?before={'f' * 40}"))[0] == 404


@SQLITE
async def test_a_forced_push_strikes_out_what_it_replaced(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=10),
               push(bot, "C", parent="B", at=20, forced=True))  # fmt: skip
    page = (await bot.get(HUD))[1]
    assert page.count(' class="gone">') == 1
    assert "no longer on the branch" in page


@SQLITE
async def test_backends_stand_on_the_same_commits(bot):
    await deliver(bot, *example(bot))
    await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS["D"], downstream_repo=L3, job_name="build",
                  workflow_name="CI", conclusion="failure")  # fmt: skip
    await add_job(bot, pr_number=None, event_type="nightly", head_sha=COMMITS["C"], downstream_repo=L2,
                  job_name="build", workflow_name="CI")  # fmt: skip
    body = (await bot.get(API))[1]
    names = [column["name"] for column in body["columns"]]
    assert names[0] == "pull / linux / test (default)"
    assert sorted(names[1:]) == sorted([f"backends / {L2} / CI / build", "backends / npu / CI / build"])
    assert {column["group"] for column in body["columns"][1:]} == {"Backends"}
    at = names.index("backends / npu / CI / build")
    assert [cell and cell["c"] for cell in shown(body, at)] == ["X", None, None, None]
    assert body["lines"][0]["verdict"] == "red"  # because of upstream's own job
    assert not body["columns"][at]["blocking"]


@SQLITE
async def test_runs_that_have_nothing_to_do_with_the_commit_are_left_out(bot):
    await deliver(bot, push(bot, "A"), run(bot, "A", number=5, event="issue_comment"),
               job(bot, "answer", "A", run=5), job(bot, "mark stale", "A", workflow="stale bot"))  # fmt: skip
    assert (await bot.get(API))[1]["columns"] == []


@SQLITE
async def test_a_run_that_never_started_is_to_be_seen(bot):
    await deliver(bot, push(bot, "A"), run(bot, "A", conclusion="startup_failure", name="pull"))
    body = (await bot.get(API))[1]
    assert [column["name"] for column in body["columns"]] == ["pull / (did not start)"]
    assert shown(body)[0]["c"] == "X"


@SQLITE
async def test_jobs_that_are_still_to_come_are_marked(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=9), job(bot, "build", "A"), run(bot, "A"),
               run(bot, "B", number=78, status="in_progress", conclusion=None))  # fmt: skip
    body = (await bot.get(API))[1]
    assert [cell["c"] for cell in shown(body)] == ["~", "O"]
    assert body["lines"][0]["verdict"] == "running"


@SQLITE
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name=lint", ["pull / lint"]),
        ("name=/^pull.*t$/", ["pull / lint"]),
        ("only=failing", ["pull / linux / build"]),
        ("group=Lint", ["pull / lint"]),
        ("hide=reruns", ["pull / lint", "pull / linux / build", "pull / linux / test (x, unstable)"]),
        ("hide=unstable,reruns", ["pull / lint", "pull / linux / build"]),
        ("group=Reruns", ["pull / linux / test (x, mem_leak_check)"]),
        (
            "",
            [
                "pull / lint",
                "pull / linux / build",
                "pull / linux / test (x, mem_leak_check)",
                "pull / linux / test (x, unstable)",
            ],
        ),
    ],
)
async def test_columns_can_be_chosen(bot, query, names):
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), job(bot, "linux / build", "A", "failure"),
               job(bot, "linux / test (x, unstable)", "A"),
               job(bot, "linux / test (x, mem_leak_check)", "A"))  # fmt: skip
    assert [column["name"] for column in (await bot.get(f"{API}?{query}"))[1]["columns"]] == names


@SQLITE
@pytest.mark.parametrize(
    "query", ["name=/(?=a)/", "name=" + "x" * 201, "only=none", "hide=all", "per=0", "per=501", "before=zz"]
)
async def test_a_wrong_parameter_is_named(bot, query):
    await deliver(bot, push(bot, "A"))
    status, body = await bot.get(f"{API}?{query}")
    assert (status, body["error"]) == (400, "invalid_parameter")
    assert query.partition("=")[0] in body["detail"]


@SQLITE
async def test_names_from_outside_are_inert(bot):
    hostile = "<script>x</script> [a](javascript:b) \u202e" + "n" * 300
    await deliver(bot, push(bot, "A", title=hostile), job(bot, hostile, "A", "failure", workflow=hostile))
    page = (await bot.get(HUD))[1]
    check_escaped(page)
    assert "\u202e" not in page


@SQLITE
async def test_a_job_without_a_name_is_shown(bot):
    await deliver(bot, push(bot, "A"), job(bot, None, "A", "failure"), job(bot, "", "A", workflow=None))
    names = [column["name"] for column in (await bot.get(API))[1]["columns"]]
    assert sorted(names) == ["(no name)", "pull / (no name)"]


@SQLITE
async def test_a_merge_leads_to_its_pull_request(bot):
    await deliver(
        bot,
        push(bot, "A", title="Merge pull request #12 from octocat/patch-1"),
        push(bot, "B", parent="A", at=1, title="Merge pull request #x from octocat/patch-2"),
    )
    assert [line["pr"] for line in (await bot.get(API))[1]["lines"]] == [None, 12]


async def three_days(bot):
    await deliver(
        bot,
        *(push(bot, name, parent=before, at=at * DAY) for at, (before, name) in enumerate(((None, "A"), ("A", "B"), ("B", "C")))),
        *(job(bot, "lint", name) for name in "ABC"),
    )  # fmt: skip
    bot.clock.advance(3 * DAY * 60)


async def commits(bot, query):
    return [line["sha"] for line in (await bot.get(f"{API}{query}"))[1]["lines"]]


@pytest.mark.logic
async def test_commits_up_to_the_end_of_a_day(bot):
    await three_days(bot)
    assert await commits(bot, "?on=2026-09-22") == [COMMITS["B"], COMMITS["A"]]
    assert await commits(bot, "?on=2026-09-21") == [COMMITS["A"]]
    assert await commits(bot, "?on=2026-09-20") == []
    assert await commits(bot, f"?on=2026-09-22&before={COMMITS['B']}") == [COMMITS["A"]]
    text = await page_text(bot, f"{HUD}?on=2026-09-22")
    assert "Commits up to the end of 2026-09-22 (UTC). The newest ones" in text
    assert "main is green since aa00000" in text  # of the newest ones
    async with bot.http.get(f"{bot.url}/hud/{UPSTREAM}?on=2026-09-22", allow_redirects=False) as answer:
        assert answer.headers["Location"] == f"{HUD}?on=2026-09-22"


@SQLITE
async def test_points_of_the_charts_lead_there(bot):
    await three_days(bot)
    await count_changed(bot.context)
    page = (await bot.get(f"/{UPSTREAM}/metrics?days=7"))[1]
    assert f'<a href="{HUD}?on=2026-09-22" tabindex=-1><circle' in page
    assert f'<th scope=row><a href="{HUD}?on=2026-09-22">2026-09-22</a>' in page


@SQLITE
@pytest.mark.parametrize(
    "day", ["yesterday", "2026-9-2", "2026-02-30", "1969-12-31", "20260922", "2026-09-22T00:00", "٢٠٢٦-٠٩-٢٢"]
)
async def test_what_is_no_day_is_refused_with_an_example(bot, day):
    await three_days(bot)
    for path in (HUD, API):
        status, answer = await bot.get(path, params={"on": day})
        assert status == 400
        assert "on must be a day since 1970, as in 2026-11-25" in str(answer)


def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@SQLITE
@pytest.mark.parametrize("pattern", [r"(\pL{1,30}){1,30}", "(((a{1,30}){1,30}){1,30}", "(?:x{900}){900}"])
@pytest.mark.parametrize("path", [f"{API}?name=/%s/", f"{HUD}?name=/%s/", f"{LAST_GOOD}?jobs=%s"])
async def test_a_pattern_that_takes_much_is_refused(bot, path, pattern):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"))
    began = time.process_time()
    assert (await bot.get(path % quote(pattern)))[0] == 400
    assert time.process_time() - began < 1


@SQLITE
@pytest.mark.alone
@pytest.mark.parametrize("path", [f"{API}?name=/%s/", f"{LAST_GOOD}?jobs=%s"])
async def test_patterns_of_strangers_are_not_kept(bot, path):
    long = [f"{'ab' * 100} {at}" for at in range(50)]
    await deliver(bot, push(bot, "A"), *(job(bot, name, "A") for name in ("build", *long)))
    before = 0
    for at in range(WARM + 120):
        if at == WARM:
            before = memory()
        assert (await bot.get(path % quote(LARGE % at)))[0] in {200, 400, 404}
    assert memory() - before < 6 * 1024 * 1024
