"""The stories of other CIs, through their endpoints: what comes in is on the grid, whatever the order."""

from __future__ import annotations

import json
import random
import re

import pytest

from bot.demo.github.registration import manifest_problems
from bot.github import manifest
from tests.browser_of_pages import Visitor
from tests.console.test_init import github as init_github  # noqa: F401 - a fixture
from tests.console.test_init import init
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.providers.sending import (
    agent_event,
    build,
    build_event,
    circleci,
    deliver_buildkite,
    deliver_circleci,
    job_event,
    send_buildkite,
    send_circleci,
    status,
    taken,
)
from tests.serving import SQLITE

FIRST, SECOND = "018f0a6e-0000-4000-8000-00000000000a", "018f0a6e-0000-4000-8000-00000000000b"
OLD_AND_NEW = ("the old secret of it", "the new secret of it")
ROTATED = dict.fromkeys(("CIRCLECI_SECRET", "BUILDKITE_TOKEN"), ", ".join(OLD_AND_NEW))


async def grid(bot, query=""):
    """The grid of main: column name -> characters, newest commit first."""
    status_code, found = await bot.get(f"/api/ci/hud/{UPSTREAM}/main{query}")
    assert status_code == 200, found
    return {
        column["name"]: "".join(line["cells"].get(str(place), {"c": " "})["c"] for line in found["lines"])
        for place, column in enumerate(found["columns"])
    }


async def jobs(bot):
    found = await bot.rows("provider_job")
    return {row["job_id"]: row for row in found}


def retried():
    """Two attempts of a job, event by event: the second one passes."""
    return [
        job_event("scheduled", job=FIRST),
        job_event("running", job=FIRST),
        job_event("failed", job=FIRST),
        job_event("failed", job=FIRST, retried=True, retried_in_job_id=SECOND),
        job_event("scheduled", job=SECOND, retries_count=1, at=20),
        job_event("running", job=SECOND, retries_count=1, at=20),
        job_event("passed", job=SECOND, retries_count=1, at=20),
    ]


async def test_a_retried_job_is_two_rows_and_an_f_whatever_the_order(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_buildkite(bot, *random.Random(3).sample(retried(), 7))
    found = await jobs(bot)
    assert {one: row["retried_in_job_id"] for one, row in found.items()} == {FIRST: SECOND, SECOND: None}
    assert [found[one]["attempt"] for one in (FIRST, SECOND)] == [1, 2]
    assert [found[one]["conclusion"] for one in (FIRST, SECOND)] == ["failure", "success"]
    assert await grid(bot) == {"buildkite / fastcheck / :npu: Test": "F"}


@pytest.mark.nightly
@pytest.mark.logic
async def test_a_hundred_orders_of_a_retried_job_end_in_the_same_rows(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_buildkite(bot, *retried())
    first = await shown_rows(bot)
    for seed in range(100):
        await forget(bot)
        await deliver_buildkite(bot, *random.Random(seed).sample(retried(), 7))
        assert await shown_rows(bot) == first, seed


async def shown_rows(bot):
    rows = [*await bot.rows("provider_job"), *await bot.rows("provider_run"), *await bot.rows("ci_cell")]
    return sorted(repr(row) for row in rows)


async def forget(bot):
    """Forget what came in: the same again is news."""
    import sqlalchemy as sa

    from bot.db.rows import metadata

    await bot.context.intake.move_arrived()
    async with bot.store.transaction() as tx:
        for name in ("provider_job", "provider_run", "provider_agent", "ci_cell", "delivery"):
            await tx.run(sa.delete(metadata.tables[name]))
    bot.context.intake._recent = type(bot.context.intake._recent)()


@pytest.mark.parametrize("order", [("job", "workflow"), ("workflow", "job")])
@pytest.mark.logic
async def test_a_job_of_circleci_may_come_before_its_workflow_or_after(bot, order):
    events = {"job": circleci(status="failed"), "workflow": circleci("workflow-completed", status="failed")}
    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, *(events[one] for one in order))
    (row,) = await bot.rows("provider_job")
    assert (row["provider"], row["project"], row["repo"]) == ("circleci", "gh/pytorch/vision", UPSTREAM)
    assert (row["status"], row["conclusion"], row["head_sha"]) == ("completed", "failure", COMMITS["A"])
    assert row["url"].endswith("/workflows/fda08377-fe7e-46b1-8992-3a7aaecac9c3/jobs/136")
    (run,) = await bot.rows("provider_run")
    assert (run["name"], run["conclusion"], run["run_id"]) == ("ci", "failure", row["workflow_id"])
    assert await grid(bot) == {"circleci / ci / test": "X"}


async def test_a_project_of_circlecis_github_app_has_no_vcs(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, circleci(vcs=False))
    (row,) = await bot.rows("provider_job")
    assert (row["head_sha"], row["branch"]) == (COMMITS["A"], "main")


async def test_a_workflow_that_could_not_be_run_is_shown_though_no_job_tells_of_it(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_circleci(bot, circleci("workflow-completed", status="error"))
    assert await grid(bot) == {"circleci / ci / (did not start)": "X"}


class TestRotation:
    @pytest.fixture
    def environ(self):
        return ROTATED

    @pytest.mark.logic
    async def test_both_secrets_are_accepted_while_one_is_rotated_and_no_third(self, bot):
        for number, secret in enumerate(OLD_AND_NEW):
            assert (await send_circleci(bot, circleci(number=number), secret=secret))[0] == 202
            assert (await send_buildkite(bot, job_event(job=f"j-{number}"), token=secret))[0] == 202
        third = "the third secret of it"
        for status_code, answer in (
            await send_circleci(bot, circleci(number=3), secret=third),
            await send_buildkite(bot, job_event(job="j-3"), token=third),
        ):
            assert (status_code, answer["error"]) == (401, "invalid_signature")
        await bot.settle()
        assert len(await bot.rows("provider_job")) == 4


@pytest.mark.logic
async def test_the_newest_status_of_a_context_counts_and_of_one_second_the_gravest(bot):
    last = {("pending", 0): "?", ("failure", 1): "X", ("success", 2): "O"}
    orders = [sorted(last), sorted(last, reverse=True)]
    for number, order in enumerate(orders):
        name = "AB"[number]
        await deliver(bot, push(bot, name, parent="A" if number else None, at=number))
        await deliver(bot, *(status(bot, "jenkins/npu/build", state, sha=name, at=at) for state, at in order))
    assert await grid(bot) == {"statuses / jenkins/npu/build": "OO"}
    (one, other) = await bot.rows("provider_job")
    assert (one["workflow_name"], one["job_name"]) == ("jenkins", "npu/build")
    assert (one["conclusion"], other["conclusion"]) == ("success", "success")
    at_once = [
        status(bot, "flaky/one", state, identifier=at)
        for at, state in enumerate(("error", "pending", "success", "failure"))
    ]
    for seed in range(3):
        await deliver(bot, *random.Random(seed).sample(at_once, 4))
        (row,) = [row for row in await bot.rows("provider_job") if row["workflow_name"] == "flaky"]
        assert row["raw_state"] == "error"


async def test_a_job_of_a_fork_is_never_trusted_whatever_its_branch_is_called(bot):
    await deliver_circleci(bot, circleci(branch="pull/77", number=1), circleci(number=2))
    await deliver_buildkite(
        bot, job_event(of=build(pull=78)), job_event(job=SECOND, of=build(branch="octocat:main"))
    )
    _, found = await bot.get(f"/api/records/provider_job/{UPSTREAM}")
    trusted = {(row["branch"], row["pr_number"]): row["trusted"] for row in found["rows"]}
    assert trusted == {
        ("pull/77", 77): False,
        ("main", None): True,
        ("main", 78): False,
        ("octocat:main", None): False,
    }


async def test_soft_failures_shards_and_jobs_that_no_agent_took_are_told_apart(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_buildkite(
        bot,
        job_event("failed", job="soft", name="Soft", soft_failed=True),
        job_event("passed", job="s1", name="Sharded", parallel_group_index=0, parallel_group_total=2),
        job_event("failed", job="s2", name="Sharded", parallel_group_index=1, parallel_group_total=2),
        job_event("expired", job="old", name="Waited"),
        job_event("waiting", job="w", name="Behind others"),
        job_event("odd", job="odd", name="Odd"),
        job_event("passed", job="wait", kind="waiter", name=None),
    )
    found = await jobs(bot)
    assert set(found) == {"soft", "s1", "s2", "old", "w", "odd"}
    assert (found["soft"]["conclusion"], found["soft"]["soft_failed"]) == ("neutral", True)
    assert (found["s2"]["shard"], found["s2"]["shards"]) == (2, 2)
    assert (found["old"]["conclusion"], found["old"]["reason"]) == ("timed_out", "no agent took it")
    assert (found["odd"]["conclusion"], found["odd"]["raw_state"]) == ("other", "odd")
    columns = {name.rpartition(" / ")[2]: cells for name, cells in (await grid(bot)).items()}
    assert columns == {"Soft": "A", "Sharded": "X", "Waited": "T", "Behind others": "Q", "Odd": "U"}


async def test_jobs_of_all_cis_are_on_one_line_and_decide_it_together(bot):
    await deliver(bot, push(bot, "A"), job(bot, "linux / build", "A"))
    await deliver_buildkite(bot, job_event("failed"))
    _, found = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    assert [line["verdict"] for line in found["lines"]] == ["red"]
    assert (await bot.get(f"/api/ci/{UPSTREAM}/last-good"))[0] == 404
    await deliver_buildkite(bot, job_event("passed", job=SECOND, retries_count=1))
    _, good = await bot.get(f"/api/ci/{UPSTREAM}/last-good")
    assert good.get("sha") == COMMITS["A"], good


async def test_agents_and_what_waits_for_them_are_on_the_queue_page(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_buildkite(
        bot,
        agent_event("connected", agent="a-1"),
        agent_event("connected", agent="a-2"),
        agent_event("lost", agent="a-2"),
        agent_event("connected", agent="a-3", queue=""),
        job_event("scheduled"),
    )
    bot.clock.advance(600)
    _, found = await bot.get(f"/api/ci/queue/{UPSTREAM}")
    assert [(one["label"], one["waiting"]) for one in found["runners"]] == [("queue=npu", 1)]
    page = (await bot.get(f"/{UPSTREAM}/queue"))[1]
    assert "queue=npu: 1 agent connected; 1 lost" in page
    assert "queue=default: 1 agent connected" in page
    assert "CircleCI tells only of finished jobs" in page


async def test_a_build_that_waits_to_be_unblocked_has_not_ended(bot):
    await deliver_buildkite(bot, build_event("passed", blocked=True))
    (row,) = await bot.rows("provider_run")
    assert (row["status"], row["conclusion"]) == ("queued", None)
    await deliver_buildkite(bot, build_event("passed"), build_event("running"))
    (row,) = await bot.rows("provider_run")
    assert (row["status"], row["conclusion"]) == ("completed", "success")
    assert row["created_at"] == 1_790_000_000_000


async def test_a_commit_that_buildkite_does_not_know_yet_comes_with_a_later_event(bot):
    await deliver(bot, push(bot, "A"))
    await deliver_buildkite(bot, job_event("scheduled", of=build("scheduled", sha="HEAD")))
    assert await grid(bot) == {}
    await deliver_buildkite(bot, job_event("running"))
    assert await grid(bot) == {"buildkite / fastcheck / :npu: Test": "?"}
    (row,) = await bot.rows("provider_job")
    assert row["head_sha"] == COMMITS["A"]


async def test_the_same_event_twice_is_one_delivery(bot):
    event = job_event("passed")
    await taken(bot, [await send_buildkite(bot, event), await send_buildkite(bot, event)])
    assert (await send_buildkite(bot, event))[1]["duplicate"] is True
    sent = [row for row in await bot.rows("delivery") if row["source"] == "buildkite"]
    assert [(row["event"], row["state"]) for row in sent] == [("buildkite.job.finished", "handled")]


@pytest.mark.parametrize("role", ["one", "upstream"])
def test_statuses_are_asked_for_only_where_they_are_wanted(role):
    plain, more = manifest.manifest_for(role), manifest.manifest_for(role, statuses=True)
    assert "status" not in plain.events
    assert "statuses" not in plain.granted
    assert set(more.events) - set(plain.events) == {"status"}
    assert more.granted == plain.granted | {"statuses": "read"}
    sent = more.as_sent(name="x", public_url="https://a.example", redirect_url="http://127.0.0.1:1/created")
    assert manifest_problems(sent, set()) == []
    assert manifest.unneeded(plain.useful, more.granted) == []  # granted later it is no surplus
    assert manifest.unneeded(plain.useful, {"statuses": "write"}) == ["statuses: write"]


async def test_init_asks_for_statuses(init_github, tmp_path):  # noqa: F811
    async with init(init_github, tmp_path, "--statuses") as running, Visitor() as visitor:
        page = await visitor.open(await running.address())
        assert "commit statuses, as Jenkins" in page.text
        asked = json.loads(dict(page.forms[0]["fields"])["manifest"])
    assert asked["default_permissions"]["statuses"] == "read"
    assert "status" in asked["default_events"]


async def push_commit(bot, github):
    """A commit on main, at GitHub and here."""
    repo = github.state.repo(UPSTREAM)
    sha = github.set_file(repo, "README.md", "news")
    event, body = push(bot, sha)
    body["before"] = "0" * 40
    await bot.send(event, body)
    await bot.settle()
    return sha


@SQLITE
async def test_a_status_set_at_github_is_a_cell_of_the_grid(bot, github):
    sha = await push_commit(bot, github)
    await github.set_status(UPSTREAM, sha, "azure/linux", "pending", target_url="https://dev.azure.test/1")
    await bot.settle()
    assert await grid(bot) == {"statuses / azure/linux": "?"}
    (row,) = await bot.rows("provider_job")
    assert (row["branch"], row["url"]) == ("main", "https://dev.azure.test/1")


@SQLITE
async def test_the_end_of_a_status_that_was_never_heard_of_is_found(bot, github):
    sha = await push_commit(bot, github)
    await github.set_status(UPSTREAM, sha, "azure/linux", "pending")
    await bot.settle()
    bot.app.webhook_url = None
    bot.clock.advance(5)
    await github.set_status(UPSTREAM, sha, "azure/linux", "failure", description="2 tests failed")
    for _ in range(4):
        await bot.wait(700)
    assert await grid(bot) == {"statuses / azure/linux": "X"}
    asked = [call for call in github.calls if re.search(r"/commits/[0-9a-f]{40}/status$", call.path)]
    assert 0 < len(asked) < 3  # not again once it has ended
