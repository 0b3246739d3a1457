"""Is anything lost or done twice when the bot is killed? A whole story, played against a process that dies in it.

GitHub's own part is played as GitHub does it: a webhook that got no answer is sent again under its GUID, a report
that got no answer is sent again by the job. Whatever the bot asked for while it died may or may not have happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import aiohttp
import pytest

from bot.core.clock import SystemClock
from bot.demo.github.faults import Fault, Faults
from tests.harness import L1, L2, L3, L4, PERIODIC, UPSTREAM, report_body
from tests.process import PATIENCE, Process, options_for, until

# Where it is killed, in order: after a step of the story; while it starts or the moment it answers; at the next
# write to such a path, before that has an effect, or after it, so that only the answer is lost.
STORIES = {
    "after what it has acknowledged": ["opened", "L3 began", "L4 ended", "run ended", "pushed"],
    "before its writes have an effect": [
        ("before", "/dispatches"), ("before", "/dispatches"), ("before", "/check-runs"), ("before", "/check-runs/"),
        ("before", "/comments"), ("before", "/dispatches"),
    ],
    "when only the answer is lost": [
        ("after", "/dispatches"), ("after", "/dispatches"), ("after", "/check-runs"), ("after", "/check-runs"),
        ("after", "/check-runs/"), ("after", "/comments"), ("after", "/dispatches"), ("after", "/check-runs"),
    ],
    "anywhere": [
        "opened", "starting", "ready", ("after", "/dispatches"), "L3 ended", "starting", ("before", "/check-runs"),
        ("after", "/check-runs"), "pushed",
    ],
}  # fmt: skip
LONG = dict.fromkeys(
    ("after what it has acknowledged", "before its writes have an effect", "when only the answer is lost"),
    pytest.mark.nightly,
)


@pytest.fixture
def clock():
    return SystemClock()


class Ambush(Faults):
    """Kills the bot at the chosen points and starts it again; stands in GitHub's way where writes come in."""

    def __init__(self, process: Process, points):
        super().__init__()
        self.left = list(points)
        self.kills = 0
        self.up = asyncio.Event()
        self._process = process
        self._starting: asyncio.Task | None = None

    def take(self, method, path):
        point = self._next()
        if method not in {"POST", "PATCH"} or not isinstance(point, tuple) or not self.up.is_set():
            return None
        when, where = point
        if where not in path:
            return None
        self.strike()
        return Fault(method=method, path=path, when=when, status=None, times=1, drop=True, delay=0)

    def expects(self, step):
        """Whether the bot is to be killed when the story has come to this step."""
        return self._next() == step

    def strike(self):
        """Kill it, and start it again meanwhile."""
        self.up.clear()
        self._process.kill()
        self._starting = asyncio.create_task(self._again())
        self.left.pop(0)
        self.kills += 1

    async def start(self):
        ready = await self._process.start()
        if self._next() == "starting":
            await self._fall()
            await self.start()
            return
        await until(ready.is_set, what="a bot that answers")
        if self._next() == "ready":
            await self._fall()
            await self.start()
            return
        self.up.set()

    async def answering(self):
        """Return when the bot can be spoken to."""
        async with asyncio.timeout(PATIENCE):
            await self.up.wait()

    async def ended(self):
        """Return when no restart is under way."""
        if self._starting:
            await self._starting

    def _next(self):
        return self.left[0] if self.left else None

    async def _fall(self):
        self.left.pop(0)
        self.kills += 1
        self._process.kill()
        await self._process.ended()

    async def _again(self):
        await self._process.ended()
        await self.start()


class Player:
    """Everybody but the bot: people, backends, GitHub."""

    def __init__(self, github, issuer, process, ambush, http):
        self.github, self.issuer, self.process, self.ambush, self.http = github, issuer, process, ambush, http

    async def until(self, condition, what):
        return await until(condition, what=what, again=self.deliver_what_was_lost)

    async def deliver_what_was_lost(self):
        """Press Redeliver for every event that the bot never took."""
        await self.ambush.answering()
        taken = {delivery.guid for delivery in self.github.deliveries if delivery.ok}
        lost = {delivery.guid: delivery for delivery in self.github.deliveries if delivery.guid not in taken}
        for delivery in lost.values():
            await self.github.redeliver(delivery)

    async def happened(self, step):
        """The story has come to this step; if the bot dies here, it has acknowledged everything before."""
        if self.ambush.expects(step):
            await self.deliver_what_was_lost()
            self.ambush.strike()

    async def dispatched(self, pull):
        """The dispatches of the newest head, one for each backend."""

        def newest():
            found = {
                dispatch.repo.full_name: dispatch
                for dispatch in self.github.dispatches
                if dispatch.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
            }
            return found if len(found) == 4 else None

        return await self.until(newest, "four dispatches")

    async def report(self, dispatch, run_id, **said):
        """Report as a job does: again until there is an answer."""
        chosen = {
            "status": "in_progress", "conclusion": None, "job": "build", "run_id": str(run_id), "attempt": 1,
        }  # fmt: skip
        body = report_body(dispatch, **(chosen | said))
        while True:
            await self.ambush.answering()
            token = self.issuer.mint(repository=dispatch.repo.full_name, run_id=str(run_id))
            headers = {"Authorization": f"Bearer {token}"}
            with contextlib.suppress(aiohttp.ClientError):
                async with self.http.post(
                    f"{self.process.url}/api/oot/callback", json=body, headers=headers
                ) as answer:
                    assert answer.status == 200, await answer.text()
                    return
            await asyncio.sleep(0.02)

    def checks(self, sha):
        return {
            run.name: (run.status, run.conclusion)
            for run in self.ours(sha)
            if run in self.github.check_runs(UPSTREAM, sha)
        }

    def ours(self, sha=None):
        return [run for run in self.github.check_runs_all(UPSTREAM, sha) if run.app is self.github.app]

    async def play(self):
        """The story; returns the pull request and its first head."""
        pull = await self.github.open_pull(UPSTREAM, title="Make it faster", author="octocat")
        first = pull.head_sha
        await self.happened("opened")
        sent = await self.dispatched(pull)
        await self.github.label(pull, "ciflow/oot/npu")
        await self.until(lambda: self.checks(first) == WAITING, "checks, which later ones have to change")
        run = await self.github.start_run(L4, event="repository_dispatch", name="CI")
        job = await self.github.start_job(run, "build")
        await self.report(sent[L3], 7)
        await self.happened("L3 began")
        await self.report(sent[L4], run.id)
        await self.report(sent[L3], 7, status="completed", conclusion="failure")
        await self.happened("L3 ended")
        await self.report(sent[L4], run.id, status="completed", conclusion="success")
        await self.happened("L4 ended")
        await self.github.finish_job(job, "success")
        await self.github.finish_run(run, "success")
        await self.happened("run ended")
        await self.until(lambda: self.checks(first) == VERDICT, "the verdict")
        await self.until(lambda: self.github.comments(pull), "the comment")
        await self.github.push_commit(pull)
        await self.happened("pushed")
        await self.dispatched(pull)
        await self.until(lambda: self.checks(pull.head_sha) == WAITING, "the checks of the new head")
        await self.until(lambda: not self.busy(), "an end of the work")
        return pull, first

    def busy(self):
        """What the bot still has to do: tasks asked for by nobody but its timetable come round for ever."""
        tasks = self.process.rows("SELECT kind, due_at FROM task WHERE state IN ('waiting', 'running')")
        soon = SystemClock().now() + 15_000
        return (
            [row for row in tasks if row["kind"] not in PERIODIC and row["due_at"] < soon]
            or self.process.spooled()
            or self.process.rows("SELECT event FROM delivery WHERE state = 'stored'")
        )


VERDICT = {
    "oot / tpu": ("completed", "success"),
    "oot / npu": ("completed", "neutral"),
    "oot / gate": ("completed", "success"),
}
WAITING = {"oot / tpu": ("queued", None), "oot / npu": ("queued", None), "oot / gate": ("in_progress", None)}


@pytest.mark.parametrize(
    "points", [pytest.param(points, id=name, marks=LONG.get(name, ())) for name, points in STORIES.items()]
)
async def test_a_killed_bot_loses_nothing_and_says_nothing_twice(github, issuer, tmp_path, points):
    options = options_for(
        tmp_path,
        private_key=github.app.private_key_pem,
        app_id=github.app.app_id,
        api_url=github.api_url,
        issuer=issuer,
    )
    process = Process(tmp_path, PUBLISH_INTERVAL="1s", WRITES_PER_MIN="6000", **options)
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    github.faults = ambush = Ambush(process, points)
    async with aiohttp.ClientSession() as http:
        player = Player(github, issuer, process, ambush, http)
        try:
            await ambush.start()
            pull, first = await player.play()
            assert ambush.left == [], "the story was over before every kill"
            check_what_people_see(player, pull, first)
            check_dispatches(player, pull, first)
            check_what_is_stored(player)
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"kills still to come: {ambush.left}; the bot said:")
            error.add_note("\n".join(process.said[-30:]))
            raise
        finally:
            await ambush.ended()
            process.kill()
            await process.ended()


def check_what_people_see(player, pull, first):
    assert player.checks(first) == VERDICT
    assert player.checks(pull.head_sha) == WAITING
    made = Counter(run.external_id for run in player.ours())
    assert made.most_common(1)[0][1] == 1, made
    (comment,) = player.github.comments(pull)
    assert "npu" in comment.body


def check_dispatches(player, pull, first):
    rows = player.process.rows("SELECT delivery_id, backend, head_sha, state, attempts FROM oot_dispatch")
    assert sorted((row["backend"], row["head_sha"]) for row in rows) == sorted(
        (repo, sha) for repo in (L1, L2, L3, L4) for sha in (first, pull.head_sha)
    )
    for row in rows:
        received = [
            dispatch.client_payload
            for dispatch in player.github.dispatches
            if dispatch.repo.full_name == row["backend"]
            and dispatch.client_payload["delivery_id"] == row["delivery_id"]
        ]
        assert 1 <= len(received) <= row["attempts"] <= 1 + player.ambush.kills, row
        assert all(payload == received[0] for payload in received)
        assert row["state"] == "sent"


def check_what_is_stored(player):
    rows = player.process.rows("SELECT downstream_repo, status, conclusion FROM oot_workflow_job ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [
        (L3, "completed", "failure"), (L4, "completed", "success"),
    ]  # fmt: skip
    stored = {row["guid"]: row["state"] for row in player.process.rows("SELECT guid, state FROM delivery")}
    assert {delivery.guid for delivery in player.github.deliveries} <= set(stored)
    assert set(stored.values()) <= {"handled", "ignored"}
    assert player.process.rows("SELECT kind, key, error FROM task WHERE state = 'dead'") == []
