"""Pages of a repository and of a commit: the home, the list of pull requests, what is not there, pushes and nights."""

import pytest

from bot.oot.results import jobs
from tests.harness import L2, L3, L4, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.pages.page_checks import add_job, check_escaped, links, page_text
from tests.pages.reading import ADMIN, read, said_to_be
from tests.serving import SQLITE

HOME, LIST = f"/{UPSTREAM}", f"/{UPSTREAM}/pulls"


async def test_the_home_of_a_repository_says_how_everything_stands(bot, pull):
    await deliver(bot, push(bot, "A"), job(bot, "linux / build", "A"), push(bot, "B", branch="old", at=-5))
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    text = await page_text(bot, HOME)
    assert "main is green since" in text
    assert "Open pull requests 1" in text
    assert "#1 Make it faster by octocat into main ✕ failed tpu" in text
    assert "1 more branch" in text
    page = (await bot.get(HOME))[1]
    check_escaped(page)
    for path in (f"/hud/{UPSTREAM}/main", f"{HOME}/pull/1", f"/oot/{L3}", LIST):
        assert links(page, path), path
        assert (await bot.get(path))[0] == 200


async def test_broken_jobs_are_red_now_and_lead_to_their_failure(bot):
    pushes = [
        push(bot, name, parent=before, at=at) for at, (name, before) in enumerate(["A-", "BA", "CB", "DC"])
    ]
    await deliver(bot, *pushes, job(bot, "linux / build", "A"))
    await deliver(bot, *(job(bot, "linux / build", name, "failure") for name in "BCD"))
    text = await page_text(bot, HOME)
    assert "main is broken since bb00000" in text
    assert "Red now ✕ pull / linux / build: broken on main since bb00000" in text
    (cell,) = links((await bot.get(HOME))[1], "?cell=")
    assert "The open cell" in (await bot.get(cell))[1]


@pytest.mark.logic
async def test_pull_requests_are_listed_with_gate_and_what_fails(bot, github, pull):
    other = await github.open_pull(UPSTREAM, title="Another", author="hubot")
    await bot.settle()
    await bot.report(bot.dispatch(L4, at=0), conclusion="failure")
    await bot.settle()
    first, second = (await read(bot, f"/api/oot/pulls{HOME}"))["pulls"]
    assert (first["number"], first["gate"], first["failing"]) == (other.number, "waiting", [])
    assert (second["number"], second["gate"], second["failing"]) == (1, "failed", ["tpu"])
    assert (second["author"], second["base_ref"]) == ("octocat", "main")
    page = (await read(bot, f"/api/oot/pulls{HOME}?limit=1"))["next"]
    (last,) = (await read(bot, f"/api/oot/pulls{HOME}?limit=1&before={page}"))["pulls"]
    assert last["number"] == 1
    (mine,) = (await read(bot, f"/api/oot/pulls{HOME}?author=HUBOT"))["pulls"]
    assert mine["number"] == other.number
    await github.merge(pull)
    await bot.settle()
    assert "Make it faster" not in await page_text(bot, LIST)
    assert "Make it faster" in await page_text(bot, f"{LIST}?state=merged")
    assert (await bot.get(f"{LIST}?state=gone"))[0] == 400
    assert (await bot.get("/no/where/pulls"))[0] == 404


@pytest.mark.logic
async def test_the_gate_of_the_list_is_that_of_the_page(bot, github, pull):
    for conclusion in ("failure", "success"):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, attempt=1 if conclusion == "failure" else 2)
        await bot.settle()
        (listed,) = (await read(bot, f"/api/oot/pulls{HOME}"))["pulls"]
        shown = (await read(bot, f"/api/oot/pulls{HOME}/1"))["gate"]
        assert listed["gate"] == shown["state"]


@pytest.mark.logic
async def test_a_page_that_is_not_there_lists_what_is(bot, pull):
    await deliver(bot, push(bot, "A"), push(bot, "B", branch="release/2.9", at=5))
    for path, near in (
        ("/no/where", HOME),
        ("/nowhere", HOME),
        ("/oot/no/backend", f"/oot/{L3}"),
        (f"{HOME}/pull/99", LIST),
        (f"{HOME}/commit/{'0' * 40}", LIST),
        (f"/hud/{UPSTREAM}/gone", f"/hud/{UPSTREAM}/release/2.9"),
        (f"{HOME}/job/99", HOME),
    ):
        status, page = await bot.get(path, headers={"Accept": "text/html"})
        assert status == (200 if "hud" in path else 404), path
        assert near in links(page, near), path
        check_escaped(page)
        assert "Views of" not in page or status == 200


@pytest.mark.logic
async def test_a_pull_request_from_before_the_app_leads_to_its_commit(bot):
    await deliver(bot, push(bot, "A", title="Fuse kernels (#77)"), job(bot, "linux / build", "A"))
    answer = await bot.http.get(f"{bot.url}{HOME}/pull/77", allow_redirects=False)
    assert answer.status == 302
    assert (await bot.get(answer.headers["Location"]))[0] == 200
    assert (await bot.get(f"{HOME}/pull/78"))[0] == 404


@pytest.mark.logic
async def test_nothing_of_a_private_repository_is_told_by_pages_that_are_not_there(bot, github, pull):
    await deliver(bot, push(bot, "A", branch="secret-branch"))
    await said_to_be(bot, github, private=True)
    for path in (HOME, LIST, "/no/where", f"{HOME}/pull/99", "/oot/no/backend", f"{HOME}/job/1"):
        status, page = await bot.get(path, headers={"Accept": "text/html"})
        assert status == 404, path
        assert "secret-branch" not in page
        assert f'href="/{UPSTREAM}"' not in page, path
        assert L4 not in page
    for path in (HOME, LIST):
        assert (await bot.get(path, headers=ADMIN))[0] == 200


SHA = "c0ffee" + "0" * 34


async def ours(bot, **changes):
    """Upstream's own workflow job, as GitHub tells of it."""
    job = {"id": 5, "run_id": 77, "run_attempt": 1, "name": "lint", "workflow_name": "pull", "head_sha": SHA,
           "status": "completed", "conclusion": "failure", "html_url": "https://github.com/x/y"} | changes  # fmt: skip
    repository = {"id": bot.github.state.repo(UPSTREAM).id, "full_name": UPSTREAM}
    await bot.send("workflow_job", {"action": job["status"], "repository": repository, "workflow_job": job})
    await bot.settle()


@pytest.mark.logic
async def test_a_commit_shows_its_backends_beside_upstreams_own_jobs(bot):
    await add_job(bot, pr_number=None, event_type="push", head_sha=SHA, job_name="build")
    await add_job(bot, pr_number=None, event_type="nightly", head_sha=SHA, downstream_repo=L2, conclusion="failure",
              downstream_repo_level=2, failed_tests=2, passed_tests=None)  # fmt: skip
    await ours(bot)
    await ours(bot, run_attempt=2, id=6, conclusion="success")
    times = {"created_at": "2026-09-21T14:00:00Z", "started_at": "2026-09-21T14:02:00Z"}
    await ours(bot, name="docs", id=7, **times, completed_at="2026-09-21T14:05:00Z")
    page = (await bot.get(f"/{UPSTREAM}/commit/{SHA[:8]}"))[1]
    check_escaped(page)
    text = await page_text(bot, f"/{UPSTREAM}/commit/{SHA[:8]}")
    assert text.index(L2) < text.index(L4)
    assert "Upstream's own CI 1 of 2 passed, 1 failed" in text
    assert "✕ failed Upstream's own CI" in text
    assert "lint pull ✓ passed" in text
    assert "docs pull ✕ failed 3 min 2 min" in text  # took, queued
    assert "2 failed" in text
    assert "2 failed, 0 passed" not in text.replace(" ,", ",")  # what was not told is not nought
    status, body = await bot.get(f"/api/oot/commits/{UPSTREAM}/{SHA}")
    assert (status, {one["downstream_repo"] for one in body["jobs"]}) == (200, {L2, L4})


@pytest.mark.logic
async def test_a_pull_request_shows_upstreams_own_jobs_too(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await ours(bot, head_sha=pull.head_sha)
    assert "Upstream's own CI 0 of 1 passed, 1 failed" in await page_text(
        bot, f"/{UPSTREAM}/pull/{pull.number}"
    )


@pytest.mark.logic
async def test_a_refused_report_is_not_shown(bot):
    await add_job(bot, pr_number=None, event_type="nightly", head_sha=SHA, flags={"refused": True})
    assert "No backend has reported" in await page_text(bot, f"/{UPSTREAM}/commit/{SHA}")


@pytest.mark.logic
async def test_a_page_looks_again_while_upstreams_own_jobs_run(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    for backend in (L2, L3, L4):
        await bot.report(bot.dispatch(backend), conclusion="failure")
    await bot.settle()
    page = f"/{UPSTREAM}/pull/{pull.number}"
    await add_job(bot, pr_number=None, event_type="push", head_sha=SHA)
    for sha, path in ((pull.head_sha, page), (SHA, f"/{UPSTREAM}/commit/{SHA}")):
        await ours(bot, head_sha=sha, status="in_progress", conclusion=None, id=len(path))
        assert 'http-equiv="refresh"' in (await bot.get(path))[1]
        await ours(bot, head_sha=sha, id=len(path))
        assert "http-equiv" not in (await bot.get(path))[1]


@SQLITE
async def test_of_very_many_backends_only_those_one_has_to_look_at_are_told_in_full(bot):
    for number in range(30):
        await add_job(bot, pr_number=None, event_type="push", head_sha=SHA, downstream_repo=f"lab/chip-{number:02}",
                  conclusion="failure" if number == 20 else "success")  # fmt: skip
    path = f"/{UPSTREAM}/commit/{SHA}"
    page = (await bot.get(path))[1]
    check_escaped(page)
    assert page.count("<details") == 12
    assert page.index("lab/chip-20") < page.index("lab/chip-00")
    assert 'class="backend line good" id="backend-lab-chip-29"' in page
    (address,) = links(page, "backend=lab%2Fchip-29") or links(page, "backend=lab/chip-29")
    opened = (await bot.get(address))[1]
    assert '<details class="backend good" id="backend-lab-chip-29" open>' in opened


@SQLITE
async def test_of_more_attempts_than_a_page_reads_the_newest_count(bot):
    for attempt, conclusion in enumerate(("failure", "failure", "success"), 1):
        bot.clock.advance(60)
        rows = {}
        for number in range(1_000):
            row = jobs.BLANK | {
                "status": "completed", "conclusion": conclusion, "downstream_repo": L4, "upstream_repo": UPSTREAM,
                "head_sha": SHA, "delivery_id": "d", "workflow_name": "CI", "job_name": f"shard {number}",
                "run_id": "1", "run_attempt": attempt, "downstream_repo_level": 4, "event_type": "push",
                "source": "callback", "flags": {}, "received_at": bot.clock.now(), "updated_at": bot.clock.now(),
            }  # fmt: skip
            rows[jobs.job_key(row)] = row | {"job_key": jobs.job_key(row)}
        async with bot.store.transaction() as tx:
            await jobs.add_jobs(tx, rows)
    assert "push · 1000 of 1000 passed" in await page_text(bot, f"/{UPSTREAM}/commit/{SHA}")
