"""Is everything there, once, and right? What the bot holds against what its neighbours know."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import sqlalchemy as sa

from bot.ingest.spool import SpoolReader
from tests.chaos.simulation import BACKENDS, L3, L4, LABEL
from tests.harness import PERIODIC, UPSTREAM

SOON = 150_000  # milliseconds: what is due later is not waited for
IDLE = 240.0  # seconds without anything new or done: leases end, what was put off comes round
SENT = {"sent"}
PULLS = "SELECT number, state, head_sha FROM pull_request"
RUNS = "SELECT id, status, conclusion FROM workflow_run ORDER BY run_attempt"
JOBS = "SELECT id, status, conclusion FROM workflow_job"
REPORTED = (
    "SELECT downstream_repo, delivery_id, run_id, run_attempt, status, conclusion FROM oot_workflow_job"
)
DISPATCHES = "SELECT delivery_id, backend, head_sha, action, pr_number, state, attempts, dispatched_at FROM oot_dispatch"
TASKS = "SELECT kind, key, state, due_at, error FROM task WHERE state IN ('waiting', 'running')"


class Audit:
    """One look at everything after a trial."""

    def __init__(self, trial, town, store):
        self.trial, self.town, self.store = trial, town, store
        self.github = town.github

    async def rows(self, query):
        """Read the bot's database from outside."""
        async with self.store.read() as tx:
            return await tx.rows(sa.text(query))

    async def doubts(self):
        """Count the dispatches that a bot that was just killed knew no answer to."""
        rows = await self.rows(f"{DISPATCHES} WHERE state = 'pending' AND dispatched_at IS NOT NULL")
        self.town.in_doubt.update((row["delivery_id"], row["backend"]) for row in rows)

    async def idle(self):
        """Wait until the bot has nothing to do that is due soon, as long as it comes on; whether it came to that."""
        left, since = await self._left(), time.monotonic()
        while left and time.monotonic() - since < IDLE:
            self.trial.say(f"{len(left)} deliveries and tasks left")
            await asyncio.sleep(0.2)  # the bot is at work
            before, left = left, await self._left()
            if left.keys() != before.keys():
                since = time.monotonic()
        self.trial.same(list(left.values())[:5], [], "work that does not end")

    async def _left(self):
        """Return what is stored and not handled, and what is due soon."""
        soon = self.store.clock.now() + SOON
        tasks = [
            row for row in await self.rows(TASKS) if row["kind"] not in PERIODIC and row["due_at"] < soon
        ]
        stored = await self.rows("SELECT guid, error FROM delivery WHERE state = 'stored'")
        spooled = {"spool": row} if (row := self._spooled())[0] else {}
        return (
            spooled | {row["guid"]: row for row in stored} | {(row["kind"], row["key"]): row for row in tasks}
        )

    def _spooled(self):
        """Return how many deliveries have not been moved to the inbox, and since when the first of them waits."""
        if not self.store.sqlite:
            return 0, None
        return SpoolReader(self.store).waiting()

    async def everything(self):
        """Look at all of it; the bot has nothing left to do."""
        self.trial.same(self.town.wrong, [], "answers that should not be")
        await self.stored()
        await self.records()
        await self.dispatched()
        await self.shown()
        dead = await self.rows("SELECT kind, key, error FROM task WHERE state = 'dead'")
        self.trial.same(dead[:5], [], "tasks given up")

    async def stored(self):
        """Every acknowledged delivery and report is there."""
        states = {row["guid"]: row for row in await self.rows("SELECT guid, state, error FROM delivery")}
        taken = {one.guid for one in self.github.deliveries if one.ok}
        self.trial.counts["deliveries acknowledged"] += len(taken)
        self.trial.counts["reports acknowledged"] += len(self.town.reports)
        self.trial.same(sorted(taken - states.keys())[:5], [], "acknowledged deliveries that are gone")
        wrong = [row for row in states.values() if row["state"] not in {"handled", "ignored", "stored"}]
        self.trial.same(wrong[:5], [], "deliveries not handled")
        rows = {
            tuple(row.values())[:4]: (row["status"], row["conclusion"]) for row in await self.rows(REPORTED)
        }
        lost = {key: said for key, said in self.town.reports.items() if rows.get(key) not in told(said)}
        self.trial.same(list(lost.items())[:5], [], "acknowledged reports that are gone")

    async def records(self):
        """Pull requests, runs, jobs and issues are as GitHub has them."""
        pulls = {row["number"]: (row["state"], row["head_sha"]) for row in await self.rows(PULLS)}
        wanted = {one.number: (one.state, one.head_sha) for one in self._pulls()}
        self._differ(pulls, wanted, "pull requests")
        repos = self.github.state.repos.values()
        runs = {run.id: (run.status, run.conclusion) for repo in repos for run in repo.runs.values()}
        self._differ(_ends(await self.rows(RUNS)), runs, "workflow runs")
        jobs = {job.id: (job.status, job.conclusion) for repo in repos for job in repo.jobs.values()}
        self._differ(_ends(await self.rows(JOBS)), jobs, "workflow jobs")
        issues = {row["id"] for row in await self.rows("SELECT id FROM issue")}
        said = {one.payload["issue"]["id"] for one in self.github.deliveries if one.event == "issues"}
        self.trial.same(sorted(issues ^ said)[:5], [], "issues recorded and not, or the other way round")

    async def dispatched(self):
        """Every backend was told of every head, and twice only where nobody could know that it was."""
        rows = await self.rows(DISPATCHES)
        received = Counter(
            (one.client_payload["delivery_id"], one.repo.full_name) for one in self.github.dispatches
        )
        withheld = self._withheld()
        self.trial.counts["dispatches"] += sum(received.values())
        for row in rows:
            key = (row["delivery_id"], row["backend"])
            got, doubts = received.pop(key, 0), self.town.in_doubt[key] + withheld[key]
            self.trial.expect(row["state"] in {"sent", "superseded"}, f"dispatch in state {row}")
            self.trial.expect(row["state"] != "sent" or got, f"a dispatch that was lost: {row}")
            self.trial.expect(got <= 1 + doubts, f"sent {got} times, in doubt {doubts} times: {row}")
            self.trial.counts["dispatches whose answer was lost"] += bool(got and doubts)
            self.trial.counts["second dispatches"] += max(got - 1, 0)
        self.trial.same(dict(received), {}, "dispatches that nobody recorded")
        self._all_told(rows)

    def _all_told(self, rows):
        sent = {(row["head_sha"], row["backend"]) for row in rows if row["state"] in SENT}
        wanted = {(one.head_sha, name) for one in self._pulls() if one.state == "open" for name in BACKENDS}
        self.trial.same(sorted(wanted - sent)[:5], [], "heads that backends were not told of")

    def _withheld(self):
        """Return how often GitHub took a dispatch and did not say so."""
        return Counter(
            (
                call.body["client_payload"]["delivery_id"],
                call.path.removeprefix("/repos/").removesuffix("/dispatches"),
            )
            for call in self.github.calls
            if call.path.endswith("/dispatches") and call.method == "POST" and call.faulted and call.body
        )

    async def shown(self):
        """One check run of each kind, one comment, and they say what is true."""
        self.duplicates()
        for pull in self._pulls():
            if pull.state == "open":
                self._checks(pull)
                self._comment(pull)

    def duplicates(self):
        """Nothing was made twice, now or later."""
        ours = [run for run in self.github.check_runs_all(UPSTREAM) if run.app is self.github.app]
        self.trial.counts["check runs"] += len(ours)
        made = Counter(run.external_id for run in ours)
        self.trial.same([one for one in made.items() if one[1] > 1][:5], [], "check runs made twice")
        self._attempts()
        said = Counter(one.pull.number for one in self._comments())
        self.trial.counts["comments"] += len(said)
        self.trial.same([one for one in said.items() if one[1] > 1][:5], [], "comments made twice")

    def _attempts(self):
        runs = [run for repo in self.github.state.repos.values() for run in repo.runs.values()]
        self.trial.counts["re-runs"] += sum(run.run_attempt > 1 for run in runs)
        often = [(run.id, run.run_attempt) for run in runs if run.run_attempt > 2]
        self.trial.same(often[:5], [], "runs that were run again twice for one request")

    def _checks(self, pull):
        runs = self.github.check_runs(UPSTREAM, pull.head_sha)
        found = {run.name: (run.status, run.conclusion) for run in runs if run.app is self.github.app}
        blocking = ("completed", self.town.outcome(pull.head_sha, L4))
        wanted = {"oot / tpu": blocking, "oot / gate": blocking}
        if LABEL in pull.labels:
            end = "success" if self.town.outcome(pull.head_sha, L3) == "success" else "neutral"
            wanted["oot / npu"] = ("completed", end)
        self.trial.same(found, wanted, f"checks of #{pull.number}")

    def _comment(self, pull):
        comments = [one for one in self._comments() if one.pull is pull]
        if self.town.outcome(pull.head_sha, L4) == "failure":
            said = comments[0].body if comments else ""
            self.trial.expect(
                "tpu" in said and pull.head_sha[:7] in said, f"#{pull.number} was not told: {said[:200]}"
            )

    def _comments(self):
        return [one for one in self.github.comments(UPSTREAM) if one.user.login == self.github.app.bot_login]

    def _pulls(self):
        return self.github.state.repo(UPSTREAM).pulls.values()

    def _differ(self, found, wanted, what):
        differ = {key: (found.get(key), said) for key, said in wanted.items() if found.get(key) != said}
        self.trial.same(list(differ.items())[:3], [], f"{what} that are not what they are at GitHub")


def told(said):
    """Return what may be held of a job of which this was said last: as much, or what came after."""
    return {said, ("completed", "failure"), ("completed", "success")} if said[0] == "in_progress" else {said}


def _ends(rows):
    return {row["id"]: (row["status"], row["conclusion"]) for row in rows}
