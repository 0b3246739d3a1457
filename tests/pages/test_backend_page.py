"""The page of a backend: grid of its jobs, failing tests, CSV; dispatches under way, and those that nobody answered."""

import csv
import html
import io
import itertools
import re
from dataclasses import replace
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from bot.core.json_fields import iso_time
from bot.ingest.tables import records
from bot.oot.results import dispatches
from tests import samples
from tests.harness import L2, L3, L4, UPSTREAM, running
from tests.oot.publish import injections
from tests.pages.page_checks import add_job, check_escaped, links, page_text
from tests.pages.reading import ADMIN, said_to_be
from tests.serving import SQLITE


@pytest.mark.logic
async def test_fifty_nine_attempts_over_fifty_two_jobs_are_fifty_two_everywhere(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    dispatch = bot.dispatch(L4)
    for number in range(52):
        await bot.report(dispatch, job=f"job {number:02}", conclusion="failure" if number < 7 else "success")
    for number in range(7):
        await bot.report(dispatch, job=f"job {number:02}", attempt=2)
    page = f"/oot/{L4}"
    assert "52 of 52 that count" in await page_text(bot, page)
    assert "52 jobs" in await page_text(bot, page)
    assert re.search(r"✓ 100 % [· ]+✓ 52 0 0 0", await page_text(bot, "/oot"))
    assert "52 of 52 passed" in await page_text(bot, f"/{UPSTREAM}/pull/{pull.number}")
    assert "100 %, 52 runs" in await page_text(bot, "/oot/metrics")
    for path in (f"/api/oot/backends/{L4}", "/api/oot/summary"):
        body = (await bot.get(path))[1]
        one = body.get("backend") or body["backends"][0]
        assert (one["runs"], one["success"], one["pass_rate"]) == (52, 52, 1.0)
    await bot.wait(20)  # the days are written
    assert "52 of 52 that count" in await page_text(bot, page)


@pytest.mark.parametrize("failed_tests", [None, []])
async def test_failed_tests_without_names_are_not_called_none(bot, github, failed_tests):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert "No failed test was reported." in await page_text(bot, f"/oot/{L4}")
    counts = {"passed": 1, "failed": 3, "skipped": 0}
    named = {} if failed_tests is None else {"failed_tests": failed_tests}
    await bot.report(bot.dispatch(L4), conclusion="failure", test_results=counts, **named)
    text = await page_text(bot, f"/oot/{L4}")
    assert "1 attempt of jobs reported 3 failed tests by number only, without names." in text
    assert "No failed test was reported." not in text


def cells_of(page):
    """The grid of the page without its head."""
    return page.partition('<table class="grid"')[2].partition("<tbody>")[2].partition("</tbody>")[0]


async def test_the_grid_has_a_line_for_each_commit_and_a_column_for_each_job(bot, github):
    pull = await github.open_pull(UPSTREAM, title="Make it faster", author="octocat")
    await bot.settle()
    await bot.report(bot.dispatch(L4), job="build")
    await bot.report(bot.dispatch(L4), job="test", conclusion="failure", test_results={"passed": 1, "failed": 1, "skipped": 0},
                     failed_tests=[{"name": "test_add", "message": "3 != 4"}])  # fmt: skip
    page = cells_of((await bot.get(f"/oot/{L4}"))[1])
    text = await page_text(bot, f"/oot/{L4}")
    assert f"#{pull.number} Make it faster" in text
    assert f"{pull.head_sha[:7]} by octocat" in text
    (opened,) = [
        one
        for one in links(page, "cell=")
        if "test: failed" in page[page.index(one.split("cell=")[1]) :][:120]
    ]
    inside = (await bot.get(f"/oot/{L4}{opened.split('#')[0]}"))[1]
    panel = inside[inside.index('id="cell"') :]
    assert "3 != 4" in panel
    assert "test_add" in panel
    assert "not among the commits shown" in await page_text(bot, f"/oot/{L4}?cell=nothing")


@pytest.mark.logic
async def test_earlier_attempts_are_there_on_demand(bot, github):
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.report(bot.dispatch(L4), attempt=2)
    page = (await bot.get(f"/oot/{L4}"))[1]
    (address,) = links(cells_of(page), "cell=")
    assert links(page, "cell=") == [address, address]  # the name of the column leads to its newest cell
    text = await page_text(bot, f"/oot/{L4}{address.split('#')[0]}")
    assert "1 earlier attempt" in text
    assert text.index("✓ passed") < text.index("1 earlier attempt")


@pytest.mark.logic
async def test_shards_share_a_column_and_many_columns_are_folded(bot):
    for shard in range(1, 6):
        conclusion = "failure" if shard == 3 else "success"
        await add_job(bot, job_name=f"test (default, {shard}, 5, big)", conclusion=conclusion)
    text = await page_text(bot, f"/oot/{L4}")
    assert "test (default, 1–5, big) CI · 5 shards" in text
    assert "1 of 5 failure" in text
    for number in range(20):
        await add_job(bot, job_name=f"other {chr(97 + number)}x", conclusion="success")
    text = await page_text(bot, f"/oot/{L4}")
    assert "9 more folded" in text
    assert "test (default, 1–5, big)" in text
    assert "9 more folded" not in await page_text(bot, f"/oot/{L4}?columns=all")


@pytest.mark.logic
async def test_pull_requests_trunk_and_nightly_are_told_apart(bot):
    await add_job(bot, job_name="of a pull")
    await add_job(
        bot, job_name="of a push", event_type="push", pr_number=None, head_sha="b" * 40, delivery_id="e"
    )
    await add_job(
        bot, job_name="by night", event_type="nightly", pr_number=None, head_sha="c" * 40, delivery_id="f"
    )
    for tab, mine in (("pulls", "of a pull"), ("trunk", "of a push"), ("nightly", "by night")):
        page = (await bot.get(f"/oot/{L4}?tab={tab}"))[1]
        grid = page[page.index('class="grid"') : page.index('id="tests"')]
        assert [name for name in ("of a pull", "of a push", "by night") if name in grid] == [mine]
    latest = page[page.index('id="latest"') :]
    for sha in ("b" * 40, "c" * 40):
        (commit,) = links(latest, f"/commit/{sha}#")
        assert (await bot.get(commit))[0] == 200
    said = "tab must be one of pulls, trunk, nightly, or left out"
    assert said in await page_text(bot, f"/oot/{L4}?tab=x", status=400)


@pytest.mark.logic
async def test_the_tests_that_fail_most_are_counted(bot):
    for number in range(3):
        failed = [{"name": "test_often"}] + (
            [{"name": "test_once", "classname": "ops"}] if number == 1 else []
        )
        await add_job(bot, run_id=str(number), conclusion="failure", failed_tests=len(failed), failed_tests_json=failed,
                  head_sha=f"{number}" * 40)  # fmt: skip
        bot.clock.advance(3_600)
    text = await page_text(bot, f"/oot/{L4}")
    part = text[text.index("Most frequent failing tests") :]
    assert part.index("test_often 3 3 3 h ago 1 h ago") < part.index("ops · test_once 1 1 2 h ago 2 h ago")


@pytest.mark.logic
async def test_jobs_come_as_a_sheet_without_formulas(bot):
    for word in injections.ALL[:60]:
        await add_job(
            bot, job_name=f"={word}".replace("\x00", ""), run_id=word.encode("utf-8", "replace").hex()[:40]
        )
    await add_job(bot, job_name="=cmd|' /C calc'!A0", workflow_name="@SUM(1)", run_id="+1", delivery_id="-2")
    async with bot.http.get(f"{bot.url}/api/oot/backends/{L4}/jobs.csv?days=1") as answer:
        assert (answer.status, answer.content_type) == (200, "text/csv")
        rows = list(csv.DictReader(io.StringIO(await answer.text())))
    assert len(rows) >= 50
    cells = [cell for row in rows for cell in row.values()]
    assert [cell for cell in cells if re.match(r"\s*[=+@|%]|\s*-\D", cell)] == []
    assert rows[0]["job_name"].startswith("'=")


async def test_all_jobs_of_a_window_can_be_had_page_by_page(bot):
    for number in range(7):
        await add_job(bot, run_id=str(number), run_attempt=1 + number % 2)
        bot.clock.advance(number // 5)  # the first five at one moment
    base = f"/api/oot/backends/{L4}"
    seen, before = [], ""
    while before is not None:
        body = (await bot.get(f"{base}?limit=3&event=pull_request{before}"))[1]
        seen.append([job["run_id"] for job in body["jobs"]])
        before = body["next"] and f"&before={body['next']}"
    assert [len(page) for page in seen] == [3, 3, 1]
    assert sorted(itertools.chain(*seen)) == [str(number) for number in range(7)]
    assert seen[0][0] == "6"
    sheets, address = [], f"{bot.url}{base}/jobs.csv?limit=4&days=2"
    while address:
        async with bot.http.get(address) as answer:
            sheets.append([row["run_id"] for row in csv.DictReader(io.StringIO(await answer.text()))])
            address = answer.links["next"]["url"] if answer.links else None
    assert [len(sheet) for sheet in sheets] == [4, 3]
    assert list(itertools.chain(*sheets)) == list(itertools.chain(*seen))
    for wrong in ("x", "1.2", "1.2.", ".1.x", "1.1.x/y", "9" * 30 + ".1.x"):
        status, body = await bot.get(f"{base}?before={wrong}")
        assert (status, body["detail"]) == (400, "before must be the `next` of an earlier answer"), wrong


# no word reaches a database's own language
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "word", samples.each(6, [*injections.HTML, *injections.UNSEEN[:20]]), ids=injections.short
)
async def test_hostile_words_are_inert(bot, word):
    clean = word.encode("utf-8", "replace").decode().replace("\x00", "")
    await add_job(bot, job_name=clean, workflow_name=clean, conclusion="failure", failed_tests=1,
              failed_tests_json=[{"name": clean, "classname": clean, "message": clean}], environment={"x": clean})  # fmt: skip
    await add_job(
        bot, job_name=clean, workflow_name=clean, pr_number=None, event_type="push", head_sha="b" * 40
    )
    await tell_of_pull(bot, title=clean, login=clean)
    page = (await bot.get(f"/oot/{L4}"))[1]
    typed = quote(clean, safe="")
    for address in [
        f"/oot/{L4}",
        f"/oot/{L4}{links(page, 'cell=')[0].split('#')[0]}",
        f"/oot?q={typed}",
        f"/oot/metrics?q={typed}",
        f"/oot/levels?q={typed}",
        f"/{UPSTREAM}/pull/1",
        f"/{UPSTREAM}/commit/{'b' * 40}",
    ]:
        check_escaped((await bot.get(address))[1])


async def tell_of_pull(bot, *, title, login):
    """A pull request as GitHub's words left it."""
    row = {
        "repository_id": 1, "repo": UPSTREAM, "received_at": bot.clock.now(), "id": 1, "number": 1, "title": title,
        "user_login": login, "state": "open", "base_ref": title, "head_sha": "a" * 40, "labels": [], "merge_state": {},
    }  # fmt: skip
    async with bot.store.transaction() as tx:
        await tx.run(sa.insert(records["pull_request"]), [row])


@pytest.mark.logic
async def test_what_was_refused_is_not_shown(bot):
    await add_job(bot, event_type="nightly", pr_number=None, job_name="believed", head_sha="b" * 40)
    await add_job(bot, event_type="nightly", pr_number=None, job_name="doubted", flags={"refused": True},
              failed_tests=1, failed_tests_json=[{"name": "test_made_up"}])  # fmt: skip
    text = await page_text(bot, f"/oot/{L4}?tab=nightly")
    assert "believed" in text
    assert "doubted" not in text
    assert "test_made_up" not in text


@SQLITE
async def test_a_point_of_a_chart_leads_to_the_jobs_of_its_day(bot):
    for days, sha in ((0, "a"), (1, "b"), (3, "c")):
        at = bot.clock.now() - days * 86_400_000
        await add_job(bot, head_sha=sha * 40, delivery_id=sha, run_id=sha, received_at=at, updated_at=at, pr_number=None,
                      event_type="push")  # fmt: skip
    page = (await bot.get(f"/oot/{L4}?days=7"))[1]
    before, yesterday = re.findall(r'href="(/oot/[^"]*&amp;on=[^"]*)" tabindex', page)[:2]
    assert "on=2026-09-18" in before
    assert "on=2026-09-20" in yesterday
    path = html.unescape(yesterday).partition("#")[0]
    text = await page_text(bot, f"{path}&tab=trunk")
    assert "bbbbbbb" in text
    assert "Only 2026-09-20 (UTC). All days of the window" in text
    grid = cells_of((await bot.get(f"{path}&tab=trunk"))[1])
    assert ("b" * 40 in grid, "a" * 40 in grid, "c" * 40 in grid) == (True, False, False)
    assert "No job of these on 2026-09-20" in await page_text(bot, path)
    for day in ("2026-13-01", "now"):
        assert "on must be a day" in (await bot.get(f"/oot/{L4}?on={day}"))[1]


PATH = "/api/oot/dispatches"


async def states(bot, query=""):
    """How far each backend's dispatch is."""
    _, body = await bot.get(f"{PATH}{query}")
    return {one["backend"]: one["state"] for one in body["dispatches"]}


@pytest.mark.logic
async def test_a_dispatch_waits_then_runs_then_is_gone(bot, pull):
    assert await states(bot) == {
        L2: "waiting",
        L3: "waiting",
        L4: "waiting",
    }  # none to L1, which never reports
    bot.clock.advance(90)
    await bot.report(bot.dispatch(L4), status="in_progress")
    bot.clock.advance(60)
    assert (await states(bot))[L4] == "running"
    _, body = await bot.get(PATH)
    running = body["dispatches"][-1]  # the oldest first
    assert (running["backend"], running["age"], running["pr"]) == (L4, 60, pull.number)
    assert (running["upstream_repo"], running["oncalls"]) == (UPSTREAM, ["dave"])
    text = await page_text(bot, "/oot/dispatches")
    assert f"L4 tpu {L4} … running {UPSTREAM}#{pull.number}" in text
    assert "60 s ago" in text
    check_escaped((await bot.get("/oot/dispatches"))[1])
    await bot.report(bot.dispatch(L4))
    assert L4 not in await states(bot)


@SQLITE
async def test_one_that_needs_approval_is_held(bot, github):
    await bot.list_backends("L4: {tpu: {repo: org/tpu-backend, policy: trusted, oncalls: [dave]}}")
    await github.open_pull(UPSTREAM, author="stranger", author_association="NONE")
    await bot.settle()
    assert (await states(bot)).get(L4) == "held"
    assert "held for approval" in await page_text(bot, "/oot/dispatches?state=held")


@SQLITE
async def test_the_table_is_narrowed(bot, pull):
    await bot.report(bot.dispatch(L4), status="in_progress")
    assert await states(bot, "?state=running") == {L4: "running"}
    assert await states(bot, "?q=NPU") == {L3: "waiting"}
    assert await states(bot, "?level=2") == {L2: "waiting"}
    assert await states(bot, "?oncall=bob") == {L2: "waiting"}
    assert len(await states(bot, "?limit=2")) == 2
    assert (await bot.get(f"{PATH}?limit=2"))[1]["total"] == 3
    assert "Nothing of that kind is under way" in await page_text(bot, "/oot/dispatches?q=nothing")


@SQLITE
@pytest.mark.parametrize("query", ["?state=lost", "?level=5", "?limit=0", "?oncall=%2F", "?refresh=1"])
async def test_what_cannot_be_meant_is_refused(bot, query):
    status, answer = await bot.get(("/oot/dispatches" if "refresh" in query else PATH) + query)
    assert status == 400
    assert (
        "state must be one of held, queued, sending, waiting, running" in str(answer) or "state" not in query
    )


@SQLITE
async def test_what_was_not_answered_for_a_week_is_not_under_way_any_more(bot, pull):
    bot.clock.advance(8 * 86_400)
    assert await states(bot) == {}
    assert "Nothing is under way" in await page_text(bot, "/oot/dispatches")


@SQLITE
async def test_those_of_a_private_upstream_are_hidden(bot, pull, github):
    await said_to_be(bot, github, private=True)
    assert (await bot.get(PATH))[0] == 404
    assert len((await bot.get(PATH, headers=ADMIN))[1]["dispatches"]) == 3


TITLE = "Dispatches nobody answered"
NEWEST = 20


async def unanswered(bot, backend, query="", **options):
    status, body = await bot.get(f"/api/oot/backends/{backend}{query}", **options)
    assert status == 200, body
    return body["unanswered"]


async def told(bot, backend):
    return next(row for row in await bot.rows("oot_dispatch") if row["backend"] == backend)


@pytest.mark.logic
async def test_a_dispatch_nobody_answered_leads_to_the_pull_request_at_that_commit(bot, github, pull):
    assert TITLE not in await page_text(bot, f"/oot/{L4}")
    first, dispatch = pull.head_sha, await told(bot, L4)
    await bot.report(bot.dispatch(L2))
    await bot.wait(24 * 3600 + 120)
    await github.push_commit(pull)
    await bot.settle()
    page = (await bot.get(f"/oot/{L4}"))[1]
    check_escaped(page)
    part = page[page.index('id="unanswered"') :]
    (link,) = links(part, f"/pull/{pull.number}?sha=")
    assert link == f"/{UPSTREAM}/pull/{pull.number}?sha={first}#backend-{L4.replace('/', '-')}"
    assert "#unanswered" in links(page, "#unanswered")  # from the number to the list
    text = await page_text(bot, f"/oot/{L4}")
    assert f"{TITLE} For State Why Asked #{pull.number} {first[:7]} ✕ never started" in text
    assert "no report within 24 h 24 h ago" in text
    assert TITLE not in await page_text(
        bot, f"/oot/{L2}"
    )  # it answered the first, and has time for the second
    assert await unanswered(bot, L2) == []
    (one,) = await unanswered(bot, L4)
    assert one["reason"].startswith("no report within")
    assert one == {
        "delivery_id": dispatch["delivery_id"], "upstream_repo": UPSTREAM, "event_type": "pull_request",
        "pr_number": pull.number, "head_sha": first, "state": "never_started", "reason": one["reason"],
        "created_at": iso_time(dispatch["created_at"]), "dispatched_at": iso_time(dispatch["dispatched_at"]),
    }  # fmt: skip


@pytest.mark.logic
async def test_a_report_that_comes_late_takes_it_from_the_list(bot, pull):
    await bot.wait(24 * 3600 + 120)
    assert len(await unanswered(bot, L4)) == 1
    assert (await bot.report(bot.dispatch(L4)))[0] == 200
    assert await unanswered(bot, L4) == []
    body = (await bot.get(f"/api/oot/backends/{L4}"))[1]
    assert (body["backend"]["never_started"], body["backend"]["runs"]) == (0, 1)


@pytest.mark.logic
async def test_what_github_would_not_take_is_among_them(bot, github):
    github.uninstall(L4, github.app)
    await bot.wait(60)
    await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    (one,) = await unanswered(bot, L4)
    assert (one["state"], L4 in one["reason"]) == ("not_installed", True)
    assert "✕ not installed the App is not installed" in await page_text(bot, f"/oot/{L4}")


async def test_only_the_newest_of_the_window_are_listed(bot, pull):
    row = await told(bot, L4)
    async with bot.store.transaction() as tx:
        for number in range(100, 125):
            other = {"id": f"id {number}", "delivery_id": f"delivery {number}", "pr_number": number}
            at = {"created_at": row["created_at"] + number, "dispatched_at": row["created_at"] + number}
            await dispatches.add_dispatch(tx, row | other | at | {"state": "never_started"})
    found = await unanswered(bot, L4)
    assert [one["pr_number"] for one in found] == list(range(124, 104, -1))
    text = await page_text(bot, f"/oot/{L4}")
    assert f"Only the newest {NEWEST} are shown." in text
    bot.clock.advance(3 * 86_400)
    assert await unanswered(bot, L4, "?days=2") == []
    assert len(await unanswered(bot, L4, "?days=7")) == NEWEST


@pytest.mark.logic
async def test_those_for_a_private_upstream_are_left_out(settings, github, issuer, clock):
    github.add_repo("open/one")
    two = replace(settings, upstream_repo=(UPSTREAM, "open/one"))
    async with running(two, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.wait(24 * 3600 + 120)
        about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        about["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": about})
        await bot.settle()
        assert await unanswered(bot, L4) == []
        assert TITLE not in await page_text(bot, f"/oot/{L4}")
        admin = {"Authorization": "Bearer an admin token of ours"}
        assert len(await unanswered(bot, L4, headers=admin)) == 1
