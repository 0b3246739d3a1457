"""kill -9 of `ootbot serve` again and again while it searches: the right culprit, no step forgotten, none sent twice.

At-least-once is what GitHub's dispatches allow: a second one is right only where the bot was killed between the call
and its answer.
"""

import asyncio
import contextlib
import os
from collections import Counter

import aiohttp
import pytest

from bot.oot.culprits.search import RUNS_MOST, Purpose
from tests.chaos.bots import Kind
from tests.chaos.scenario import Trial, until
from tests.chaos.simulation import BACKENDS, L3
from tests.chaos.stage import staged
from tests.flows.scenarios import WRITER
from tests.harness import UPSTREAM, report_body
from tests.oot.culprits.searched import JOB, TEST, WORKFLOW

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

COMMITS, BROKEN_FROM, PARALLEL = 40, 22, 2
LONGEST = 3.0  # seconds from the bot's answer to its end
PATIENCE = 900.0  # seconds until the search has come to its end, or to its limit
AGAIN = {429, 503}  # statuses of an answer after which a job reports once more
DEADLINE = aiohttp.ClientTimeout(total=10)


def listed(per_day):
    terms = f"bisect: {{per_day: {per_day}, parallel: {PARALLEL}}}"
    return f"L1: [{BACKENDS[0]}]\nL3: {{npu: {{{L3}: {{oncalls: [carol], answers: all, {terms}}}}}}}\n"


class Backend:
    """The backend that is searched: it runs what it is sent, and reports until the bot has answered."""

    def __init__(self, stage):
        self.stage, self.github, self.town = stage, stage.github, stage.town
        self.shas: list[str] = []
        self.received: Counter[str] = Counter()  # by delivery id
        self._running: set[asyncio.Task] = set()
        self.github.on_dispatch = self._dispatched

    async def break_branch(self):
        """Push commits, and report that it passed on the first one and failed on the last."""
        for number in range(COMMITS):
            self.shas.append(await self.github.push(UPSTREAM, message=f"Change c{number} (#{100 + number})"))
        assert await until(self._all_pushed, seconds=60), "not all pushes were recorded"
        await self._nightly(0, "success")
        await self._nightly(COMMITS - 1, "failure")

    async def ask(self):
        """Begin the search as people do."""
        self.github.set_permission(UPSTREAM, WRITER, "write")
        pull = await self.github.open_pull(UPSTREAM)
        await self.github.close(pull)
        await self.github.comment(pull, "/oot bisect npu", WRITER)

    async def rest(self):
        """Return when all jobs have reported."""
        await asyncio.gather(*self._running)

    async def _all_pushed(self):
        return len(await self.stage.audit.rows("SELECT sha FROM branch_commit")) >= COMMITS

    async def _nightly(self, at, conclusion):
        body = {
            "event_type": "nightly", "delivery_id": self.shas[at],
            "workflow": {
                "status": "completed", "conclusion": conclusion, "name": WORKFLOW, "job_name": JOB,
                "run_id": str(5_000 + at), "run_attempt": 1, "url": f"https://github.com/{L3}/actions/runs/{5_000 + at}",
            },
        }  # fmt: skip
        await self._report(body)

    async def _dispatched(self, dispatch):
        if "bisect" in dispatch.client_payload:
            self.received[dispatch.client_payload["delivery_id"]] += 1
            running = asyncio.create_task(self._run(dispatch))
            self._running.add(running)

    async def _run(self, dispatch):
        """What its workflow does."""
        run = await self.github.start_run(
            dispatch.repo, display_title=dispatch.event_type, actor=dispatch.app.bot_login
        )
        bad = self.shas.index(dispatch.client_payload["payload"]["after"]) >= BROKEN_FROM
        for status in ("in_progress", "completed"):
            conclusion = "failure" if bad else "success"
            body = report_body(
                dispatch, status=status, conclusion=conclusion, job=JOB, run_id=str(run.id), attempt=1
            )
            if bad and status == "completed":
                body["workflow"]["failed_tests"] = [TEST]
            await self._report(body)
            await self.town.pause(0.5)

    async def _report(self, body):
        """Report until there is an answer, as the action does."""
        run_id = body["workflow"]["run_id"]
        while (status := await self._post(body, run_id)) != 200:
            assert status in AGAIN | {None}, (status, body)
            await asyncio.sleep(0.1)  # the bot is away

    async def _post(self, body, run_id):
        token = self.town.issuer.mint(repository=L3, run_id=run_id, run_attempt=1)
        headers, url = {"Authorization": f"Bearer {token}"}, f"{self.town.address()}/api/oot/callback"
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.town.http.post(url, json=body, headers=headers, timeout=DEADLINE) as answer:
                return answer.status
        return None


@contextlib.asynccontextmanager
async def searching(trial, *, per_day, several=False):
    """A bot that has been asked for a search."""
    async with staged(trial, kinds=(Kind(several=several),)) as stage:
        (trial.folder / "allowlist.yml").write_text(listed(per_day))
        stage.bot.start()
        await stage.bot.up()
        stage.town.live(authors=0, talkers=0)  # somebody presses Redeliver
        backend = Backend(stage)
        await backend.break_branch()
        await backend.ask()
        yield stage, backend
        await backend.rest()
        stage.town.calm.set()


async def kill_until(stage, condition, *, several=False):
    """Kill the bot at random moments until something is true; returns how often."""
    chance, kills = stage.trial.chance, 0

    async def kill_once():
        nonlocal kills
        await stage.bot.up()
        await asyncio.sleep(chance.uniform(0, LONGEST))  # the backend's time
        listens = not several or await stage.bot.kill_one(chance)
        if not several:
            await stage.bot.kill()
        kills += 1
        await stage.audit.doubts()
        if listens:
            stage.bot.start()
        return await condition()

    assert await until(kill_once, seconds=PATIENCE), (
        kills,
        (await found(stage))["why"],
        await steps_of(stage),
    )
    await stage.bot.up()
    return kills


async def found(stage):
    rows = await stage.audit.rows("SELECT * FROM bisect")
    return rows[0] if rows else None


async def steps_of(stage):
    return await stage.audit.rows("SELECT * FROM bisect_step ORDER BY number")


def at_once(steps):
    """How many steps were under way at the same time, at most."""
    return max(
        sum(one["created_at"] <= step["created_at"] < (one["ended_at"] or 2**62) for one in steps)
        for step in steps
    )


async def check_sent(stage, backend):
    """Every step was sent, and more than once only where nobody could know that it was."""
    steps = await steps_of(stage)
    assert set(backend.received) == {step["delivery_id"] for step in steps}
    for delivery, count in backend.received.items():
        assert count <= 1 + stage.town.in_doubt[delivery, L3], delivery
    asked = Counter((step["sha"], step["purpose"]) for step in steps)
    assert all(
        count == 1 if purpose == Purpose.SPLIT else count < RUNS_MOST for (_, purpose), count in asked.items()
    ), asked
    assert at_once(steps) <= PARALLEL
    dead = await stage.audit.rows("SELECT kind, key, error FROM task WHERE state = 'dead'")
    assert dead == []
    return steps


@pytest.mark.parametrize(
    ("seed", "several"), [("one", False), ("two", False), ("three", False), ("four", True)]
)
async def test_the_culprit_is_found_whatever_is_killed(tmp_path, seed, several):
    trial = Trial(n=0, seed=seed, folder=tmp_path, quiet=True)
    async with searching(trial, per_day=60, several=several) as (stage, backend):

        async def over():
            search = await found(stage)
            return search is not None and search["ended_at"] is not None

        kills = await kill_until(stage, over, several=several)
        search = await found(stage)
        assert (search["state"], search["culprit_sha"]) == ("found", backend.shas[BROKEN_FROM]), search["why"]
        steps = await check_sent(stage, backend)
        assert all(step["outcome"] for step in steps)
        assert search["used"] == len(steps) <= 2 * 4 + 1 + 3
        assert kills >= 5


async def test_the_runs_of_a_day_are_not_exceeded_however_often_it_is_killed(tmp_path):
    trial = Trial(n=0, seed="five", folder=tmp_path, quiet=True)
    async with searching(trial, per_day=4) as (stage, backend):

        async def waits():
            search = await found(stage)
            return search is not None and search["state"] == "waiting"

        await kill_until(stage, waits)
        after = iter(range(8))
        await kill_until(stage, lambda: _exhausted(after))
        search = await found(stage)
        assert (search["state"], search["used"]) == ("waiting", 4)
        assert search["why"].startswith("the 4 runs a day for searches in npu are used up")
        assert len(await check_sent(stage, backend)) == 4


async def _exhausted(numbers):
    return next(numbers, None) is None
