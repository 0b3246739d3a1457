"""Pages and JSON of searches, their marks on other pages, their commands on the console, and who is told of a culprit."""

import json
import re

import pytest
import sqlalchemy as sa

from bot.oot.culprits.tables import bisect
from bot.pages.culprits import sections
from bot.web.blocks import FailureStart, FailureSubject
from tests import harness
from tests.command import ootbot
from tests.flows.scenarios import WRITER
from tests.harness import L3, UPSTREAM
from tests.notify.receiving import check, receiving, telling
from tests.oot.culprits.searched import SPELLED, TEST, broken_branch
from tests.oot.culprits.test_story import begin, newest_answer
from tests.pages.test_private_names import said_to_be

pytestmark = pytest.mark.logic

ADMIN = {"Authorization": "Bearer an admin token of ours"}


async def sign_in(bot) -> dict:
    """Sign in as a browser does; returns the headers of its requests."""
    form = {"token": "an admin token of ours"}
    async with bot.http.post(f"{bot.url}/admin/sign-in", data=form, allow_redirects=False) as answer:
        assert answer.status in {302, 303}
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    bot.http.cookie_jar.clear()
    return {"Cookie": cookie}


async def test_a_search_is_shown_while_it_runs_and_once_it_is_over(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github, f"/oot bisect npu {SPELLED}")
    await branch.answer(9)
    search = await branch.search()
    address = f"/{UPSTREAM}/bisects/{search['id']}"
    status, page = await bot.get(address)
    assert status == 200
    assert f"npu: {SPELLED}" in page
    assert "At most 8 more runs" in page
    assert page.count('class="wait"') >= 2
    _, told = await bot.get(f"/api/ci/bisects/{UPSTREAM}/{search['id']}")
    assert [one["state"] for one in told["commits"]] == [
        "good", *["not_asked"] * 4, "running", *["not_asked"] * 4, "running", *["not_asked"] * 4, "bad",
    ]  # fmt: skip
    assert (told["runs_left"], told["search"]["state"]) == (8, "running")
    found = await branch.finish(9)
    _, page = await bot.get(address)
    assert "is broken by <" not in page
    assert f"is broken by #109 ({branch.shas[9][:7]}, alice)" in page
    assert 'class="bad culprit"' in page
    _, listed = await bot.get(f"/api/ci/bisects/{UPSTREAM}")
    assert [(one["id"], one["state"], one["why"]) for one in listed["searches"]] == [
        (search["id"], "found", found["why"])
    ]
    assert listed["measures"]["found"] == 1
    _, page = await bot.get(f"/{UPSTREAM}/bisects")
    assert "Of 1 culprit found in the last year, 0 were later reverted" in page
    assert (await bot.get(f"/{UPSTREAM}/bisects/{'0' * 10}"))[0] == 404
    assert (await bot.get(f"/api/ci/bisects/{UPSTREAM}?state=cancelled"))[1]["searches"] == []


async def test_the_culprit_is_marked_where_people_look(bot, github):
    branch = await broken_branch(bot, github)
    await branch.push(2)
    for at in (16, 17):
        await branch.nightly(at, "failure", failed_tests=[TEST])
    await begin(bot, github)
    search = await branch.search()
    link = f'href="/{UPSTREAM}/bisects/{search["id"]}"'
    _, grid = await bot.get(f"/hud/{UPSTREAM}/main")
    assert re.search(rf"<section class=\"broken\".*{re.escape(link)}.*being searched", grid, re.DOTALL)
    await branch.finish(9)
    _, grid = await bot.get(f"/hud/{UPSTREAM}/main")
    (row,) = re.findall(rf'<tr data-sha="{branch.shas[9][:12]}".*?</th>', grid, re.DOTALL)
    assert "broke npu" in row
    assert "/admin/bisects" not in grid
    for page in (f"/{UPSTREAM}/commit/{branch.shas[9]}", f"/{UPSTREAM}/pull/109"):
        status, text = await bot.get(page)
        assert (status, "is broken by #109" in text) in {(200, True), (404, False)}, page
    key = re.search(r'data-key="([0-9a-f]{10})"', grid)[1]
    _, opened = await bot.get(f"/hud/{UPSTREAM}/main?cell={branch.shas[8][:12]}.{key}")
    assert "by bisect" in opened
    metrics = (await bot.get("/metrics", headers=ADMIN))[1]
    assert 'ootbot_bisects_total{state="found"} 1.0' in metrics
    assert "ootbot_bisect_runs_total 7.0" in metrics


@pytest.mark.nightly
async def test_the_buttons_are_for_those_who_are_signed_in(bot, github):
    branch = await broken_branch(bot, github)
    await branch.push(2)
    for at in (16, 17):
        await branch.nightly(at, "failure", failed_tests=[TEST])
    signed_in = await sign_in(bot)
    _, grid = await bot.get(f"/hud/{UPSTREAM}/main", headers=signed_in)
    (form,) = re.findall(r'<form class="inline" method="post" action="/admin/bisects">.*?</form>', grid)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    async with bot.http.post(f"{bot.url}/admin/bisects", data=fields, allow_redirects=False) as refused:
        assert refused.status in {302, 303, 401, 403}
    assert await bot.rows("bisect") == []
    sent = {"data": fields, "headers": signed_in | {"Origin": bot.url}, "allow_redirects": False}
    async with bot.http.post(f"{bot.url}/admin/bisects", **sent) as begun:
        assert begun.status in {302, 303}
    (search,) = await bot.rows("bisect")
    assert begun.headers["Location"] == f"/{UPSTREAM}/bisects/{search['id']}"
    assert search["requested_by"] == "the administrator"
    _, page = await bot.get(f"/{UPSTREAM}/bisects/{search['id']}", headers=signed_in)
    (cancel,) = re.findall(r'action="(/admin/bisects/\w+/cancel)"', page)
    async with bot.http.post(f"{bot.url}{cancel}", **sent) as done:
        assert done.status in {302, 303}
    assert (await branch.search())["state"] == "cancelled"
    wrong = sent | {"data": fields | {"what": "no such job"}}
    async with bot.http.post(f"{bot.url}/admin/bisects", **wrong) as told:
        assert told.status in {302, 303}
    assert len(await bot.rows("bisect")) == 1


async def test_searches_of_a_private_backend_are_for_the_administrator(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    search = await branch.search()
    await said_to_be(bot, github, L3, private=True)
    for path in (f"/{UPSTREAM}/bisects/{search['id']}", f"/api/ci/bisects/{UPSTREAM}/{search['id']}"):
        assert (await bot.get(path))[0] == 404
        assert (await bot.get(path, headers=ADMIN))[0] == 200
    assert (await bot.get(f"/api/ci/bisects/{UPSTREAM}"))[1]["searches"] == []
    _, told = await bot.get(f"/api/ci/bisects/{UPSTREAM}", headers=ADMIN)
    assert len(told["searches"]) == 1
    found = await branch.finish(9)
    assert found["state"] == "found"
    for page in (f"/hud/{UPSTREAM}/main", f"/{UPSTREAM}/commit/{branch.shas[9]}"):
        assert search["id"] not in (await bot.get(page))[1]
    # answers to commands are public
    assert (await begin(bot, github, "/oot bisect npu nothing"))[0] == ["eyes", "confused"]
    answer = await newest_answer(bot)
    assert (answer.startswith("npu is private"), "test" in answer) == (True, False)


@pytest.mark.nightly
async def test_a_comment_is_written_once_where_the_entry_says_so(bot, github):
    await bot.list_backends(f"L3: {{npu: {{{L3}: {{answers: all, bisect: {{comment: true}}}}}}}}\n")
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    branch = await broken_branch(bot, github, commits=8)
    await branch.push(title=f"Vectorize it (#{pull.number})")
    await branch.push(3)
    await branch.nightly(11, "failure", failed_tests=[TEST])
    await github.close(pull)
    await bot.settle()
    github.set_permission(UPSTREAM, WRITER, "write")
    await begin(bot, github, f"/oot bisect npu {branch.shas[1][:10]}..{branch.shas[11][:10]}")
    found = await branch.finish(8)
    await bot.settle(horizon=60)
    assert (found["state"], found["pr_number"]) == ("found", pull.number)
    said = [one.body for one in github.comments(pull) if "ootbot:culprit" in one.body]
    assert len(said) == 1
    assert "is broken by #" in said[0]
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert f"is broken by #{pull.number}" in page
    assert f'href="/{UPSTREAM}/bisects/{found["id"]}"' in page
    async with bot.store.transaction() as tx:
        tx.enqueue("bisect_found", found["id"])
    await bot.settle(horizon=60)
    assert len([one for one in github.comments(pull) if "ootbot:culprit" in one.body]) == 1


@pytest.mark.nightly
async def test_a_culprit_that_is_reverted_counts_as_right(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.finish(9)
    await branch.push(title='Revert "Change c9 (#109)" (#130)')
    await bot.wait(700)
    assert (await branch.search())["mended_sha"] == branch.shas[16]
    _, listed = await bot.get(f"/api/ci/bisects/{UPSTREAM}")
    assert (listed["measures"]["found"], listed["measures"]["mended"]) == (1, 1)


@pytest.mark.nightly
async def test_the_page_of_a_failure_offers_a_search_in_each_job_that_it_began_in(bot, github):
    branch = await broken_branch(bot, github)
    began = (
        FailureStart(repo=L3, job="CI / test", upstream=UPSTREAM, branch="main"),
        FailureStart(repo="org/delisted", job="CI / test", upstream=UPSTREAM, branch="main"),
    )
    subject = FailureSubject(signature="5" * 64, began=began, settings=bot.context.settings)
    async with bot.store.read() as tx:
        (block,) = await sections.describe_failure(tx, subject)
    (form,) = block.forms
    assert dict(form.fields) == {
        "repo": UPSTREAM, "branch": "main", "backend": L3, "what": "CI / test", "signature": "5" * 64,
    }  # fmt: skip
    await begin(bot, github)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(bisect).values(signature="5" * 64))
    async with bot.store.read() as tx:
        (block,) = await sections.describe_failure(tx, subject)
    assert block.lines[0].url == f"/{UPSTREAM}/bisects/{(await branch.search())['id']}"


async def test_a_search_is_begun_listed_and_cancelled_on_the_console(bot, github):
    branch = await broken_branch(bot, github)
    code, out, err = await ootbot(
        bot, "bisect", "start", "npu", "CI / test", "--reason", "the night of Tuesday"
    )
    assert (code, err) == (0, "")
    search = await branch.search()
    assert f"search {search['id']} began between {branch.shas[0][:7]} and {branch.shas[15][:7]}" in out
    assert (search["requested_by"], search["reason"]) == ("the operator", "the night of Tuesday")
    _, out, _ = await ootbot(bot, "bisect", "start", "npu", "--json")
    again = json.loads(out)
    assert (again["id"], again["new"]) == (search["id"], False)
    code, _, err = await ootbot(bot, "bisect", "start", "nqu")
    assert (code, "the nearest are: npu" in err) == (1, True)
    _, out, _ = await ootbot(bot, "bisect", "list", "--json")
    (row,) = map(json.loads, out.splitlines())
    assert row["page_url"].endswith(f"/bisects/{search['id']}")
    assert (await ootbot(bot, "bisect", "cancel", search["id"]))[0] == 0
    assert (await branch.search())["state"] == "cancelled"
    code, _, err = await ootbot(bot, "bisect", "cancel", search["id"])
    assert (code, "is over: cancelled by the operator" in err) == (1, True)
    assert search["id"] in (await ootbot(bot, "bisect", "list"))[1]


async def test_a_culprit_is_told_once(settings, github, issuer, clock):
    async with receiving() as inbox:
        chosen = telling(settings, inbox.receiver(events=("culprit_found",)))
        async with harness.running(
            chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
        ) as bot:
            branch = await broken_branch(bot, github)
            await begin(bot, github)
            search = await branch.finish(broken_from=9)
            await check(bot)
            await check(bot)
    (notice,) = inbox.notices
    assert search["why"] in str(notice)
    assert f"/{UPSTREAM}/bisects/{search['id']}" in str(notice)
    assert L3 in str(notice)
