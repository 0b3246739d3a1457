"""What if the database fails in the middle? At every statement and at the commit: nothing half done, the retry succeeds."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from bot.core.errors import StoreUnavailable
from bot.demo.github.faults import Faults
from bot.queue import tasks
from tests.harness import ALLOWLIST, L1, L2, L3, L4, UPSTREAM

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
        "dispatches": sorted(dispatches),
        "jobs": sorted(jobs),
        "checks": checks,
        "dead": dead,
        "told": told,
    }


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
