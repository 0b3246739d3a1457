"""What pull requests say of tests: the same test of all backends once, upstream's beside, and greens that ran little."""

from __future__ import annotations

import json
import re

import pytest
import sqlalchemy as sa

from bot.evidence.tests.tables import test_job
from tests.evidence.disabled.issues import deliver, issue, may_write, platforms
from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, L4, UPSTREAM
from tests.pages.page_checks import failures
from tests.serving import SQLITE

pytestmark = SQLITE

HORIZON = 200
HOSTILE = "test_@octocat|&lt;img src=x&gt;`](https://evil.example)"
TRACEBACK = """Traceback (most recent call last):
  File "/builds/project/torch/ops.py", line 7, in add
  File "/builds/project/test/test_ops.py", line 12, in test_add
AssertionError: 3 != 4"""
UNTIL_LISTED = 300
TEST = "test_add (__main__.TestOps)"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    return made


async def own_ci(github, pull, *cases):
    """Upstream's own CI on the pull request."""
    fork = github.state.repos.get("someone/pytorch") or github.add_repo("someone/pytorch", install=[])
    return await ran(
        github,
        {"a.xml": xml(*cases)},
        event="pull_request",
        head_repo=fork,
        head_sha=pull.head_sha,
        conclusion="failure",
    )


async def backend_ci(bot, github, repo, *cases, conclusion="failure"):
    """A backend's run on the newest dispatch, reported and with a report of tests."""
    run = await github.start_run(repo, event="repository_dispatch")
    job = await github.start_job(run, JOB.replace("cuda", "device"))
    await bot.report(bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id))
    await leave(github, run, job, {"a.xml": xml(*cases)}, conclusion=conclusion)
    await bot.settle(horizon=HORIZON)
    return run


def comment(github, pull):
    found = [comment.body for comment in github.comments(pull) if comment.app is not None]
    return found[0] if found else None


def listed(text):
    """The lines of the list of failing tests."""
    return [line for line in text.splitlines() if line.startswith("- ") and "[history](" in line]


def failing_on(page):
    """The devices that a page says a test fails on."""
    listed = {word for row in failures(page) for word in re.findall(r"✕ (\w+) failed", row[1])}
    told = re.findall(r"fails on ([\w ]+)", page)
    return listed or {word for words in told for word in re.findall(r"[nt]pu", words)}


async def test_the_same_test_of_several_backends_is_one_line_beside_upstream(bot, github, pull):
    await own_ci(github, pull, case("test_add_cuda", suite="TestOpsCUDA"), case("test_own", "failed"))
    for backend, device in ((L3, "npu"), (L4, "tpu")):
        await backend_ci(
            bot,
            github,
            backend,
            case(f"test_add_{device}", "failed", suite=f"TestOps{device.upper()}", message="3 != 4"),
            *([case(HOSTILE, "failed")] if device == "npu" else []),
        )
    text = comment(github, pull)
    first, second = listed(text)
    assert "fails on npu and tpu, passes upstream (cuda)" in first
    assert "/test/" in first
    assert "fails on npu" in second
    assert "@octocat" not in text
    assert "](https://evil" not in text
    assert "test_own" not in text  # upstream's own failures are for its own pages
    for page in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}/tests"):
        _, shown = await bot.get(page)
        assert "test_own" in shown
        assert "<img src=x" not in shown
    _, shown = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "3 failures: 3 without a baseline yet" in shown
    assert [row[1:] for row in failures(shown) if "test_add" in row[0]] == [
        ["✕ npu failed ✕ tpu failed ✓ upstream cuda passed", "no baseline yet",
         "shared blocks merging"]
    ]  # fmt: skip


async def test_failures_of_upstream_alone_make_no_comment(bot, github, pull):
    run, job = await own_ci(github, pull, case("test_own", "failed", message="3 != 4"))
    await bot.settle(horizon=HORIZON)
    assert comment(github, pull) is None
    for page in (f"/{UPSTREAM}/job/{job.id}", f"/{UPSTREAM}/run/{run.id}", f"/{UPSTREAM}/pull/{pull.number}"):
        _, shown = await bot.get(page)
        assert "test_own" in shown
        assert "3 != 4" in shown


async def test_the_page_folds_failures_that_are_not_the_authors(bot, github):
    await ran(github, {"a.xml": xml(case("test_old", "failed"), case("test_new"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    made = await github.open_pull(UPSTREAM)
    await own_ci(github, made, case("test_old", "failed"), case("test_new", "failed"))
    await bot.settle(horizon=HORIZON)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{made.number}")
    first, _, folded = page.partition("<summary>Likely not this change: 1 known</summary>")
    assert "test_new" in first
    assert "test_old" not in first
    assert "test_old" in folded.partition("</details>")[0]


async def test_the_page_counts_once_what_it_folds(bot, github):
    await ran(github, {"a.xml": xml(case("test_old", "failed"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    made = await github.open_pull(UPSTREAM)
    await own_ci(github, made, case("test_old", "failed"))
    await bot.settle(horizon=HORIZON)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{made.number}")
    assert page.count("test_old</bdi>") == 1
    assert "1 failure: 1 known" in page
    assert "all 1 failing tests, with their jobs" in page


async def test_a_test_that_passes_when_it_is_run_again_leaves_the_comment(bot, github, pull):
    run = await backend_ci(bot, github, L3, case("test_add", "failed"))
    assert len(listed(comment(github, pull))) == 1
    github.begin_attempt(run)
    job = await github.start_job(run, JOB.replace("cuda", "device"))
    await bot.report(bot.dispatch(L3), conclusion="success", run_id=str(run.id), attempt=2)
    await leave(github, run, job, {"a.xml": xml(case("test_add"))})
    await bot.settle(horizon=HORIZON)
    assert "test_add" not in comment(github, pull)


async def test_pages_show_what_stands_after_a_re_run_has_passed(bot, github, pull):
    run = await backend_ci(bot, github, L3, case("test_add", "failed"))
    await backend_ci(bot, github, L4, case("test_add", "failed"), case("test_sub", "failed"))
    places = (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}")
    for place in (*places, f"/{UPSTREAM}/commit/{pull.head_sha}/tests"):
        page = (await bot.get(place))[1]
        assert {"npu", "tpu"} <= failing_on(page), place
    github.begin_attempt(run)
    job = await github.start_job(run, JOB.replace("cuda", "device"))
    await bot.report(bot.dispatch(L3), conclusion="success", run_id=str(run.id), attempt=2)
    await leave(github, run, job, {"a.xml": xml(case("test_add"))})
    await bot.settle(horizon=HORIZON)
    for place in (*places, f"/{UPSTREAM}/commit/{pull.head_sha}/tests"):
        page = (await bot.get(place))[1]
        assert failing_on(page) == {"tpu"}, place


@pytest.mark.parametrize(
    "again",
    ["attempt", pytest.param("attempt without a report of tests", marks=pytest.mark.nightly), "dispatch"],
)
async def test_pages_show_no_failure_of_what_has_passed_since(bot, github, pull, again):
    run = await backend_ci(bot, github, L3, case("test_add", "failed"))
    pages = [f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}/tests"]
    for page in pages:
        assert "test_add" in (await bot.get(page))[1]
    if again == "dispatch":
        bot.clock.advance(60)
        await github.comment(pull, "/oot run npu", by="carol")
        await bot.settle()
        await backend_ci(bot, github, L3, case("test_other"), conclusion="success")
    else:
        github.begin_attempt(run)
        job = await github.start_job(run, JOB.replace("cuda", "device"))
        await bot.report(bot.dispatch(L3), conclusion="success", run_id=str(run.id), attempt=2)
        files = {} if "without" in again else {"a.xml": xml(case("test_add"))}
        await leave(github, run, job, files)
    await bot.settle(horizon=HORIZON)
    for page in pages:
        shown = (await bot.get(page))[1]
        assert "fails on npu" not in shown, page
        assert "test_add" not in shown.replace("test_add</a> passed", ""), page


async def test_over_ten_failing_tests_are_a_link(bot, github, pull):
    await backend_ci(bot, github, L3, *(case(f"test_{number:02}", "failed") for number in range(12)))
    text = comment(github, pull)
    assert len(listed(text)) == 10
    assert f"…and 2 more: [all of them]({bot.context.settings.url}/{UPSTREAM}/pull/{pull.number})" in text


async def test_of_a_private_backend_no_test_is_named(bot, github, pull):
    await backend_ci(bot, github, L3, case("test_secret", "failed"))
    assert "test_secret" in comment(github, pull)
    about = {
        "id": github.state.repo(L3).id,
        "full_name": L3,
        "private": True,
        "updated_at": "2030-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.settle(horizon=HORIZON)
    assert "test_secret" not in comment(github, pull)
    for page in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}", f"/{L3}/tests"):
        assert "test_secret" not in str((await bot.get(page))[1])


async def test_a_green_that_ran_little_is_told_at_the_gate_and_in_the_comment(bot, github):
    many = [case(f"test_{number}") for number in range(40)]
    for _ in range(3):
        await github.open_pull(UPSTREAM)
        await bot.settle()
        await backend_ci(bot, github, L4, *many, conclusion="success")
        bot.clock.advance(60)
    async with bot.store.transaction() as tx:  # as runs for commits of a trusted branch are
        await tx.run(sa.update(test_job).values(trusted=True))
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    await backend_ci(bot, github, L3, case("test_0", "failed"))
    few = [case("test_0"), case("test_1"), *(case(f"test_{number}", "skipped") for number in range(2, 40))]
    await backend_ci(bot, github, L4, *few, conclusion="success")
    words = "passed, but ran 2 of 40 tests"
    assert words in comment(github, pull)
    checks = {run.name: run for run in github.check_runs(UPSTREAM, pull.head_sha)}
    assert words in checks["oot / gate"].output.summary
    assert words in checks["oot / tpu"].output.title
    _, shown = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert words in shown


@pytest.mark.parametrize(
    ("excluded", "explained"),
    [
        ({"excluded": [{"test_file": "test_big"}, {"test_file": "test_gone"}], "included": []}, True),
        ({"excluded": [{"test_file": "test_ops"}]}, False),  # which has few tests
        pytest.param({"excluded": "everything"}, False, marks=pytest.mark.nightly),
    ],
)
async def test_a_green_that_left_tests_out_on_purpose_is_no_thin_one(bot, github, excluded, explained):
    many = [case("test_0"), *(case(f"test_{number}", file="test_big.py") for number in range(40))]
    for _ in range(3):
        await github.open_pull(UPSTREAM)
        await bot.settle()
        await backend_ci(bot, github, L4, *many, conclusion="success")
        bot.clock.advance(60)
    async with bot.store.transaction() as tx:  # as runs for commits of a trusted branch are
        await tx.run(sa.update(test_job).values(trusted=True))
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch")
    job = await github.start_job(run, JOB.replace("cuda", "device"))
    await bot.report(bot.dispatch(L4), conclusion="success", run_id=str(run.id))
    files = {"td_exclusions-1.json": json.dumps(excluded).encode(), "other.json": b"no"}
    github.add_artifact(run, f"test-jsons-runattempt1-test-default-1-2-linux.large_{job.id}", files)
    await leave(github, run, job, {"a.xml": xml(case("test_0"))}, conclusion="success")
    await bot.settle(horizon=HORIZON)
    words = "ran 1 of 41 tests"
    _, shown = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert (f"{words}, 2 files left out by selection" in shown) == explained
    checks = {run.name: run for run in github.check_runs(UPSTREAM, pull.head_sha)}
    assert (words in checks["oot / gate"].output.summary) == (not explained)


def failed(name, text="", *, file="test_ops.py", line="", message="3 != 4"):
    at = f' line="{line}"' if line else ""
    return (
        f'<testcase file="{file}"{at} classname="TestOps" name="{name}" time="1">'
        f'<failure type="AssertionError" message="{message}"><![CDATA[{text}]]></failure></testcase>'
    )


async def marks(bot, github, *cases, files=("test/test_ops.py", "src/op.py"), times=1):
    """Path, line and title of what is marked on the pull request's check run."""
    pull = await github.open_pull(UPSTREAM, files=files)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch")
    job = await github.start_job(run, JOB)
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    for _ in range(times):
        await leave(github, run, job, {"a.xml": xml(*cases)}, conclusion="failure")
        await bot.settle(horizon=400)
    checks = {one.name: one for one in github.check_runs(UPSTREAM, pull.head_sha)}
    return [(one["path"], one["start_line"], one["title"]) for one in checks["oot / tpu"].output.annotations]


async def test_a_failed_test_is_marked_at_the_line_of_its_own_file_that_the_traceback_names(bot, github):
    found = await marks(bot, github, failed("test_add", TRACEBACK), times=2)
    assert found == [("test/test_ops.py", 12, f"TestOps.test_add failed in {JOB}")]


async def test_without_a_traceback_the_line_of_the_case_is_marked_and_variants_share_a_mark(bot, github):
    cases = [failed(f"test_add_{one}", line="11") for one in ("int8", "int16")]
    assert [at[:2] for at in await marks(bot, github, *cases)] == [("test/test_ops.py", 12)]  # pytest: from 0


async def test_a_file_that_is_not_changed_or_not_certain_and_paths_that_lead_outside_are_not_marked(
    bot, github
):
    cases = [
        failed("test_far", line="3", file="far.py"),
        failed("test_two_of_that_name", line="3", file="conftest.py"),
        failed("test_outside", line="3", file="../test/test_ops.py"),
        failed("test_no_number", line="3e2"),
        failed("test_beyond", line="99999999999"),
        failed("test_control", line="3", file="test/test_ops.py&#10;"),
        failed("test_only_a_name", 'File "/usr/lib/setup.py", line 3, in x', file="setup.py"),
    ]
    files = ("test/test_ops.py", "a/conftest.py", "b/conftest.py", "setup.py")
    assert await marks(bot, github, *cases, files=files) == []


async def fails_on_tpu(bot, github):
    """A pull request on which a backend fails a test that passed on the branch before; returns it."""
    await github.push(UPSTREAM)
    await bot.settle(horizon=UNTIL_LISTED)
    of_pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch")
    job = await github.start_job(run, JOB.replace("cuda", "tpu"))
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await leave(github, run, job, {"a.xml": xml(case("test_add", "failed"))}, conclusion="failure")
    await bot.settle(horizon=UNTIL_LISTED)
    return of_pull


async def verdict(bot):
    (failure,) = await bot.rows("test_failure")
    return failure["verdict"]


def said(github, of_pull):
    """What the comment says of the test."""
    (body,) = [comment.body for comment in github.comments(of_pull) if comment.app is not None]
    (line,) = [line for line in body.splitlines() if line.startswith("- ") and "test_add" in line]
    return line


@pytest.mark.parametrize("first", ["issue", "failure"])
async def test_an_issue_disables_a_test_until_it_is_closed(bot, github, first):
    may_write(bot, "erin")
    opened = issue(bot, 1, f"DISABLED {TEST}", "Platforms: tpu")
    if first == "issue":
        await deliver(bot, opened)
    of_pull = await fails_on_tpu(bot, github)
    if first == "failure":
        assert await verdict(bot) == "no_baseline"
        await deliver(bot, opened)
        await bot.settle(horizon=UNTIL_LISTED)
    assert await platforms(bot) == {TEST: ["tpu"]}
    assert await verdict(bot) == "disabled"
    assert "disabled" in said(github, of_pull)
    closed = issue(bot, 1, f"DISABLED {TEST}", "Platforms: tpu", state="closed", at=60)
    await deliver(bot, closed)
    await bot.settle(horizon=UNTIL_LISTED)
    assert await platforms(bot) == {}
    assert await verdict(bot) == "no_baseline"
    assert "disabled" not in said(github, of_pull)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"by": "mallory"}, f"mallory has no write access to {UPSTREAM}"),
        ({"body": "Platforms: rocm"}, None),
        ({"body": "Platforms: toaster"}, "no platform is left, so nothing is disabled"),
    ],
)
async def test_an_issue_that_does_not_disable_it_here_changes_nothing(bot, github, change, reason):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, f"DISABLED {TEST}", **{"body": "Platforms: tpu"} | change))
    of_pull = await fails_on_tpu(bot, github)
    assert await verdict(bot) == "no_baseline"
    assert "disabled" not in said(github, of_pull)
    if reason:
        _, page = await bot.get(f"/{UPSTREAM}/disabled")
        assert reason in page
