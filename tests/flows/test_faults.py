"""What if the database fails in the middle? At every statement and at the commit: nothing half done, the retry succeeds."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from bot.core.errors import StoreUnavailable
from bot.demo.github.faults import Faults
from bot.queue import tasks
from tests.harness import (
    ALLOWLIST,
    L1,
    L2,
    L3,
    L4,
    SECRET,
    UPSTREAM,
    UPSTREAM_ID,
    make_settings,
    running,
    sign,
)

LEFT_BY_A_REPORT = ("oot_workflow_job", "oot_rate", "task")
MOST = 60  # statements one report may take
LEASE = 61  # seconds after which what a task left behind is taken up again


class Saboteur:
    """Lets the database fail: at the n-th statement from now, or commit, or right after it; once or again and again.

    From one failure to the next it is a little further each time, thrice: else what takes so many commits itself would
    be struck at the same place for ever.
    """

    def __init__(self):
        self.disarm()

    def arm(self, kind, at, *, again=False):
        self.kind, self.at, self.again, self.left, self.struck = kind, at, again, at, 0

    def disarm(self):
        self.arm("", 0)

    def statement(self, _conn, _cursor, statement, _parameters, _context, _many):
        if self.kind == "statement" and not statement.startswith(("PRAGMA", "BEGIN")):
            self._count()

    def commit(self, conn):
        if self.kind == "answer":  # it is committed, and nobody hears of it
            conn.connection.dbapi_connection.commit()
        if self.kind in {"commit", "answer"}:
            self._count()

    def _count(self):
        self.left -= 1
        if self.left == 0:
            self.struck += 1
            self.left = self.at + self.struck % 3 if self.again else 0
            raise sa.exc.OperationalError("the test", None, Exception("the database failed on purpose"))


@pytest.fixture
def saboteur():
    made = Saboteur()
    listened = (("before_cursor_execute", made.statement), ("commit", made.commit))
    for name, function in listened:
        sa.event.listen(Engine, name, function)
    yield made
    for name, function in listened:
        sa.event.remove(Engine, name, function)


async def left(bot):
    return {name: await bot.rows(name) for name in LEFT_BY_A_REPORT}


@pytest.mark.parametrize("kind", ["statement", "commit"])
async def test_a_report_that_the_database_fails_leaves_nothing_and_its_retry_everything(
    bot, github, saboteur, kind
):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch, failed = bot.dispatch(L4), 0
    for at in range(1, MOST):
        for said in ({"status": "in_progress"}, {"conclusion": "failure", "failed_tests": [{"name": "t"}]}):
            before = await left(bot)
            saboteur.arm(kind, at)
            status, answer = await bot.report(dispatch, job=f"job {at}", **said)
            struck = saboteur.struck
            saboteur.disarm()
            if struck:
                failed += 1
                assert (status, answer["error"]) == (503, "store_unavailable")
                assert await left(bot) == before
                status, answer = await bot.report(dispatch, job=f"job {at}", **said)
            assert (status, "duplicate" in answer) == (200, False)
        if not struck:
            break
    assert failed >= (4 if kind == "statement" else 2)
    assert at < MOST - 1
    rows = await bot.rows("oot_workflow_job")
    assert {(row["status"], row["conclusion"]) for row in rows} == {("completed", "failure")}
    rates = [row for row in await bot.rows("oot_rate") if not row["caller"].startswith("bytes of ")]
    assert sum(row["accepted"] for row in rates) == 2 * len(rows)


async def test_a_report_whose_answer_is_lost_after_the_commit_is_known_on_its_retry(bot, github, saboteur):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    saboteur.arm("answer", 1)
    status, _ = await bot.report(bot.dispatch(L4))
    saboteur.disarm()
    assert status == 503
    assert await bot.report(bot.dispatch(L4)) == (200, {"ok": True, "status": "completed", "duplicate": True})


class Outage(Faults):
    """The database fails from a call on, until somebody waits."""

    def __init__(self, saboteur, path):
        super().__init__()
        self._saboteur, self._path = saboteur, path

    def take(self, method, path):
        if method == "POST" and path.endswith(self._path):
            self._saboteur.arm("statement", 1, again=True)
        return super().take(method, path)


async def test_a_dispatch_is_not_sent_again_when_its_answer_cannot_be_stored_at_once(
    bot, github, clock, saboteur
):
    Path(bot.context.settings.allowlist).write_text(f"L1: [{L1}]")
    await bot.wait(61)
    github.faults, sleep = Outage(saboteur, f"{L1}/dispatches"), clock.sleep

    async def passes(seconds):
        saboteur.disarm()
        await sleep(seconds)

    clock.sleep = passes
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=60)
    assert [one.repo.full_name for one in github.dispatches] == [L1]
    assert [row["state"] for row in await bot.rows("oot_dispatch")] == ["sent"]


async def work(bot, seconds):
    """Let that much time pass, going on whenever the database failed, and taking up what was left behind."""
    end = bot.clock.now() + seconds * 1000
    while (left := end - bot.clock.now()) > 0:
        try:
            await bot.wait(min(left / 1000, LEASE))
        except StoreUnavailable:
            bot.clock.advance(1)
        with contextlib.suppress(StoreUnavailable):
            async with bot.store.transaction() as tx:
                await tasks.release(tx)


async def told(bot, dispatch, **said):
    """Report as a client does: again while it is told to come back."""
    for _ in range(20):
        status, answer = await bot.report(dispatch, **said)
        if status == 200:
            return
        assert (status, answer["error"]) == (503, "store_unavailable")
    pytest.fail("never taken")


async def story(bot, github):
    """Relay, reports, confirmation, sweep and settling of one pull request."""
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    for delivery in [one for one in github.deliveries if one.status_code != 202]:
        await github.redeliver(delivery)
    for _ in range(3):  # what fails again and again is put off for longer and longer
        await work(bot, 900)
        sent = {one.repo.full_name: one for one in github.dispatches}
        if sent.keys() >= {L2, L3, L4}:
            break
    run = await github.start_run(L4, display_title="pull_request", actor=github.app.bot_login)
    for repo, run_id in ((L2, "7"), (L3, "8"), (L4, str(run.id))):
        await told(bot, sent[repo], status="in_progress", run_id=run_id)
    await told(bot, sent[L4], run_id=str(run.id))
    await told(bot, sent[L3], run_id="8", conclusion="failure")
    await github.finish_run(run, "success")
    await work(bot, 300)
    await work(bot, 700)  # L2's job stays silent
    return pull


async def seen(bot, github, pull):
    """What it came to."""
    dispatches = [(row["backend"], row["state"]) for row in await bot.rows("oot_dispatch")]
    kept = ("downstream_repo", "status", "conclusion", "head_sha")
    jobs = [tuple(row[name] for name in kept) for row in await bot.rows("oot_workflow_job")]
    checks = {name: check[:2] for name, check in bot.checks(UPSTREAM, pull.head_sha).items()}
    dead = [row["error"] for row in await bot.rows("task") if row["state"] == "dead"]
    told = sorted({one.repo.full_name for one in github.dispatches})  # at least once
    return {
        "dispatches": sorted(dispatches), "jobs": sorted(jobs), "checks": checks, "dead": dead, "told": told,
    }  # fmt: skip


@pytest.mark.logic
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("statement", 41),
        pytest.param("statement", 53, marks=pytest.mark.nightly),
        ("commit", 7),
        pytest.param("answer", 11, marks=pytest.mark.nightly),
    ],
)
async def test_a_database_that_fails_again_and_again_changes_nothing_of_what_it_comes_to(
    bot, github, saboteur, kind, at
):
    path = Path(bot.context.settings.allowlist)
    path.write_text(ALLOWLIST.replace('"alice, bob"', "{job_timeout: 10m}"))
    await bot.wait(61)
    saboteur.arm(kind, at, again=True)
    pull = await story(bot, github)
    assert saboteur.struck > 5
    saboteur.disarm()
    await work(bot, 600)
    assert await seen(bot, github, pull) == {
        "dispatches": sorted([(L1, "sent"), (L2, "sent"), (L3, "sent"), (L4, "sent")]),
        "jobs": sorted(
            [
                (L2, "completed", "timed_out", pull.head_sha),
                (L3, "completed", "failure", pull.head_sha),
                (L4, "completed", "success", pull.head_sha),
            ]
        ),
        "checks": {
            "oot / gate": ("completed", "success"),
            "oot / npu": ("completed", "neutral"),
            "oot / tpu": ("completed", "success"),
        },
        "dead": [],
        "told": sorted([L1, L2, L3, L4]),
    }


# Does a token that not all of GitHub's servers know yet cost anything? It gets 401, 403 or 404 for some seconds.


UNKNOWN_FOR = 3_000  # milliseconds
LIFE = 20_000


@pytest.mark.logic
async def test_what_a_fresh_token_is_refused_is_asked_again_and_nothing_is_given_up(bot, github):
    github.state.replication, github.state.token_life = UNKNOWN_FOR, LIFE
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle(horizon=30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    for repo in (L3, L4):
        await bot.report(bot.dispatch(repo), conclusion="failure")
    await bot.settle(horizon=90)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    (comment,) = github.comments(pull)
    bot.clock.advance(120)  # another token, as fresh, for what is there already
    await bot.report(bot.dispatch(L3), conclusion="failure", job="another")
    await bot.settle(horizon=90)
    assert github.comments(pull) == [comment]
    assert "another" in comment.body
    made = [run.external_id for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert len(made) == len(set(made))
    assert [row["error"] for row in await bot.rows("task") if row["state"] == "dead"] == []


@pytest.mark.logic
async def test_a_refusal_that_takes_longer_to_arrive_than_its_token_is_fresh_is_asked_again(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=404, delay=6)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}


@pytest.mark.logic
async def test_a_refusal_that_is_meant_is_believed_after_one_more_try(bot, github):
    body = {"message": "Resource not accessible by integration"}
    github.faults.add(method="GET", path="/collaborators/", status=404, body=body, times=10)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    said = await github.comment(pull, "/oot rerun", "mallory")
    await bot.settle(horizon=30)
    assert [one.content for one in said.reactions] == ["eyes", "confused"]
    asked = [call for call in github.calls if "/collaborators/" in call.path]
    assert len(asked) <= 2


# Two Apps, one for upstream and one for the backends: is everything still said and done once?


OTHER = "the other App's secret"


@pytest.fixture
async def two(github, issuer, clock, tmp_path, database_url, app_key):
    """A bot with two Apps, both of them installed on upstream."""
    second = github.register_app(
        webhook_url=None, webhook_secret=OTHER, slug="ootbot-relay", private_key_pem=app_key
    )
    github.install(UPSTREAM, second)
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url,
        relay_app_id=second.app_id, relay_private_key=second.private_key_pem, relay_webhook_secret=(OTHER,),
    )  # fmt: skip
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        second.webhook_url = bot.app.webhook_url
        bot.second = second
        yield bot


@pytest.mark.logic
async def test_a_pull_request_both_apps_are_told_of_is_relayed_once(two, github):
    for name in (L1, L2, L3, L4):
        github.install(name, two.second)
    pull = await github.open_pull(UPSTREAM)
    await two.settle()
    told = [sent for sent in github.deliveries if sent.event == "pull_request"]
    assert {sent.app.app_id for sent in told} == {two.app.app_id, two.second.app_id}
    assert {sent.status_code for sent in told} == {202}
    assert len({sent.guid for sent in told}) == 1, "GitHub's GUID is the event's, not the App's"
    assert sorted(one.repo.full_name for one in github.dispatches) == sorted([L1, L2, L3, L4])
    assert two.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
@pytest.mark.parametrize("target", ["first", "second", None])
@pytest.mark.parametrize("signed_by", ["first", "second"])
async def test_each_apps_secret_opens_its_own_door_only(two, target, signed_by):
    apps = {"first": str(two.app.app_id), "second": str(two.second.app_id), None: None}
    secrets = {"first": SECRET, "second": OTHER}
    body = json.dumps(
        {"action": "created", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}
    ).encode()
    headers = {
        "X-GitHub-Hook-Installation-Target-ID": apps[target],
        "X-Hub-Signature-256": sign(body, secrets[signed_by]),
    }
    status, _ = await two.send("star", None, body=body, headers=headers)
    assert status == (202 if target in {signed_by, None} else 401)
