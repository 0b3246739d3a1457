"""What people ask of a pull request, and whether its page answers before anything is opened or scrolled far."""

import html
import re

import pytest

from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, L4, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, push
from tests.pages.page_checks import check_escaped, failures, page_text
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 200


@pytest.fixture
def bot(collecting_bot):
    return collecting_bot


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, title="Add faster", author="octocat", labels=["ciflow/oot/npu"])
    await bot.settle()
    return made


async def page_of(bot, pull, query=""):
    status, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}{query}")
    assert status == 200
    check_escaped(page)
    return page


def top(page):
    """What stands above the list of failures, as text."""
    return " ".join(
        html.unescape(re.sub(r"<[^>]+>", " ", page.partition('<section id="failures">')[0])).split()
    )


async def run_of(bot, github, repo, *, log="fine\n", files=None, conclusion="failure", name="build"):
    """A run of a backend for its newest dispatch, reported, with a log or reports of tests."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    job = await github.start_job(run, name)
    await bot.report(bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id))
    if files:
        await leave(github, run, job, files, conclusion=conclusion)
    else:
        await github.finish_job(job, conclusion, log=log)
        await github.finish_run(run, conclusion)
    await bot.settle(horizon=HORIZON)
    return run, job


async def test_is_it_blocked_and_by_whom(bot, github, pull):
    await run_of(bot, github, L3, conclusion="success")
    await run_of(bot, github, L4, log="make: *** [all] Error 2\n")
    own = await github.start_run(UPSTREAM, event="pull_request", name="lint", head_sha=pull.head_sha)
    await github.finish_job(await github.start_job(own, "lint"), "success")
    await github.finish_run(own, "success")
    await bot.settle(horizon=HORIZON)
    page = await page_of(bot, pull)
    said = top(page)
    assert f"Add faster #{pull.number} open by octocat into main" in said
    assert "blocked by tpu: 1 failure" in said
    assert "not judged here: upstream's own CI , 1 of 1 passed" in said
    (row,) = failures(page)
    assert row[3] == "tpu blocks merging"
    body = github.comments(pull)[-1].body.splitlines()
    assert body[2] == "**❌ `tpu` blocks merging: 1 failure**"
    assert body[4].startswith(f"`{pull.head_sha[:7]}` on `main` at `{pull.base_sha[:7]}` (20")
    assert re.search(rf"based on {pull.base_sha[:7]} (\S+ )*of (\S+ )?20", said)


async def test_is_a_failure_mine(bot, github):
    await ran(github, {"a.xml": xml(case("test_old", "failed"), case("test_mine"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    pull = await github.open_pull(UPSTREAM)
    fork = github.state.repos.get("someone/pytorch") or github.add_repo("someone/pytorch", install=[])
    reports = {"a.xml": xml(case("test_old", "failed"), case("test_mine", "failed"))}
    await ran(
        github, reports, event="pull_request", head_repo=fork, head_sha=pull.head_sha, conclusion="failure"
    )
    await bot.settle(horizon=HORIZON)
    page = await page_of(bot, pull)
    assert "2 failures: 1 new, 1 known" in page
    mine, known = failures(page)
    assert "test_mine" in mine[0]
    assert mine[2:] == ["✕ new passes without this change", "upstream"]
    assert "test_old" in known[0]
    assert known[2] == "! known fails without this change too"
    assert page.index("test_mine") < page.index("Likely not this change") < page.index("test_old")
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    listed = answer["failures"]
    assert (listed["total"], listed["summary"]) == (2, "2 failures: 1 new, 1 known")
    assert [(one["word"], one["whose"], one["blocking"]) for one in listed["failures"]] == [
        ("new", "upstream", False),
        ("known", "upstream", False),
    ]


async def test_is_it_the_runner(bot, github, pull):
    await run_of(bot, github, L4, log="##[error]The runner has received a shutdown signal.\n")
    page = await page_of(bot, pull)
    assert "1 failure: 1 infrastructure" in page
    (row,) = failures(page)
    assert "infra: ##[error]The runner has received a shutdown signal." in row[0]
    assert row[2].startswith("! infrastructure")


async def test_did_my_rerun_start(bot, github, pull):
    run, _ = await run_of(bot, github, L4, log="make: *** [all] Error 2\n")
    bot.clock.advance(5)
    await github.comment(pull, "/oot rerun tpu", by="octocat")
    await bot.settle(horizon=60)
    assert "octocat: /oot rerun tpu →" in top(await page_of(bot, pull))
    assert "waiting for tpu" in top(await page_of(bot, pull))
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id), attempt=2)
    page = await page_of(bot, pull)
    assert "waiting for tpu" in top(page)
    assert "1 running" in top(page)
    assert "Nothing has failed so far." in page
    earlier = page.partition('id="earlier">')[2].partition("</details>")[0]
    told = " ".join(re.sub(r"<[^>]+>", " ", earlier).split())
    assert told == (
        "Earlier attempt: 1 failure that does not count any more tpu · CI / build : failed in attempt 1, "
        "running in attempt 2"
    )


async def test_does_it_fail_on_npu_only(bot, github, pull):
    fork = github.state.repos.get("someone/pytorch") or github.add_repo("someone/pytorch", install=[])
    own = {"a.xml": xml(case("test_add_cuda", suite="TestOpsCUDA"))}
    await ran(github, own, name=JOB, event="pull_request", head_repo=fork, head_sha=pull.head_sha)
    npu = {"a.xml": xml(case("test_add_npu", "failed", suite="TestOpsNPU", message="3 != 4"))}
    await run_of(bot, github, L3, files=npu)
    tpu = {"a.xml": xml(case("test_add_tpu", suite="TestOpsTPU"))}
    await run_of(bot, github, L4, files=tpu, conclusion="success")
    (row,) = failures(await page_of(bot, pull))
    assert "test_add_npu" in row[0]
    assert row[1] == "✕ npu failed ✓ tpu passed ✓ upstream cuda passed"
    assert row[3] == "npu"


async def test_a_backends_job_leads_back_to_the_pull_request(bot, github, pull):
    run, job = await run_of(bot, github, L4, log="make: *** [all] Error 2\n")
    of_run = await page_text(bot, f"/{L4}/run/{run.id}")
    assert f"A run of the backend {L4} L4 for {UPSTREAM}#{pull.number} Add faster" in of_run
    path = f"/{L4}/job/{job.id}"
    assert f"A job of the backend {L4} L4 for {UPSTREAM}#{pull.number} Add faster" in await page_text(
        bot, path
    )
    page = (await bot.get(path))[1]
    check_escaped(page)
    (back,) = re.findall(rf'<a href="(/{UPSTREAM}/pull/[^"]*)"', page)
    assert back == f"/{UPSTREAM}/pull/{pull.number}?sha={pull.head_sha}#backend-org-tpu-backend"
    about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    await bot.send(
        "repository", {"action": "privatized", "repository": about | {"updated_at": "2030-01-01T00:00:00Z"}}
    )
    await bot.settle(horizon=15)
    bot.clock.advance(60)
    assert UPSTREAM not in (await bot.get(path))[1]


async def test_a_commit_says_what_it_is(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1))
    path = f"/{UPSTREAM}/commit/{COMMITS['B']}"
    text = await page_text(bot, path)
    assert f"Change B (#66) {COMMITS['B'][:12]}" in text
    assert re.search(rf"on main \S.* · after {COMMITS['A'][:7]} · merged #66", text)
    assert f'href="/{UPSTREAM}/commit/{COMMITS["A"]}"' in (await bot.get(path))[1]


EVIL = '"><script>alert(1)</script>\u202e'


async def test_nothing_in_the_list_is_more_than_a_word(bot, github, pull):
    await bot.report(
        bot.dispatch(L4), conclusion="failure", job=EVIL, name=EVIL, url="javascript:alert(1)",
        test_results={"passed": 0, "failed": 3, "skipped": 0},
        failed_tests=[{"name": EVIL, "classname": EVIL, "file": EVIL, "line": 1, "message": EVIL, "stacktrace": EVIL}],
    )  # fmt: skip
    page = await page_of(bot, pull)
    assert "javascript:" not in page
    assert len(failures(page)) == 2  # the test, and those that were only counted
    assert "2 failed tests not named" in page
