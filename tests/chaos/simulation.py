"""Who lives around the bot? People, GitHub, backends: each does its part for as long as it is told to go on.

They play as the real ones do. GitHub sends a webhook once; somebody presses Redeliver for what was not taken. A job
reports until it gets an answer. What was acknowledged is kept, to be compared with what the bot holds in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter, deque
from typing import Any

import aiohttp

from tests.chaos.scenario import until
from tests.harness import UPSTREAM, UPSTREAM_ID, report_body

L1, L2, L3, L4 = "watch/l1", "two/l2-sim", "three/npu", "four/tpu"
BACKENDS = (L1, L2, L3, L4)
ALLOWLIST = f"L1: [{L1}]\nL2: [{L2}]\nL3: {{npu: {{{L3}: {{oncalls: [carol], answers: all}}}}}}\nL4: {{tpu: {{{L4}: [dave]}}}}\n"
LABEL = "ciflow/oot/npu"
REFUSALS = {429, 503}  # come again later, the bot says
PATIENCE = 20.0  # seconds an author waits for a verdict
TEAM = 20  # people who take turns: one may give 60 commands in an hour, and a long trial needs more
MOST_OPEN = 50  # pull requests of a team: a project has about as many open as it had an hour before
DEADLINE = aiohttp.ClientTimeout(total=10)


class Town:
    """Everybody but the bot."""

    def __init__(self, *, github, issuer, http, address, chance):
        self.github, self.issuer, self.http = github, issuer, http
        self.address = address  # of the bot, or of one of several: a function
        self.chance = chance
        # acknowledged: which job -> what was said
        self.reports: dict[tuple[str, ...], tuple[str, str | None]] = {}
        # (delivery id, backend) -> kills that came between intent and answer
        self.in_doubt: Counter = Counter()
        self.unanswered = 0  # reports
        self.wrong: list[str] = []
        self.calm = asyncio.Event()
        self.haste = 1.0  # below 1: everybody takes longer
        self.tries_again = 0.3  # of the authors of what fails
        self.again: set[str] = set()  # heads whose author asked for another try: that one ends well
        self.about_to = lambda name: None  # told what the bot is about to be sent
        self._began: Counter = Counter()  # head -> backends that were dispatched
        self._at_work: Counter = Counter()  # head -> those of them that have not ended
        self._dispatch_of: dict[int, object] = {}  # run -> what started it
        self._living: set[asyncio.Task] = set()
        self._looked_at = 0  # deliveries
        self._lost: dict[str, object] = {}
        github.on_dispatch, github.on_rerun = self._dispatched, self._run_again
        for name in (UPSTREAM, *BACKENDS):
            github.add_repo(name)

    def live(self, *, authors, talkers):
        """Let so many people work on pull requests, and so many talk in issues."""
        for who in range(authors):
            self._go_on(self._authors(f"author-{who}"))
        for who in range(talkers):
            self._go_on(self._talker(who))
        self._go_on(self._redeliver())

    async def rest(self):
        """Let everybody end what they are doing, and GitHub deliver what has not been taken."""
        self.calm.set()
        while self._living or self._lost:
            await asyncio.gather(*self._living)
            await self._redeliver_lost()
            await asyncio.sleep(0.05)  # the bot is at work
        await self.github.settled()

    def leave(self):
        """Stop at once."""
        for one in self._living:
            one.cancel()

    def _go_on(self, work):
        going = asyncio.create_task(work)
        self._living.add(going)
        going.add_done_callback(self._ended)

    def _ended(self, going):
        self._living.discard(going)
        if not going.cancelled() and (error := going.exception()):
            self.wrong.append(repr(error))

    async def _authors(self, team):
        mine: deque[Any] = deque()
        for turn in itertools.count():
            if self.calm.is_set():
                return
            name = f"{team}-{turn % TEAM}"
            labels = [LABEL] if self.chance.random() < 0.5 else []
            pull = await self.github.open_pull(UPSTREAM, author=name, labels=labels)
            await self.pause(1.0)
            if self.chance.random() < 0.4:
                await self.github.push_commit(pull)
                await self.pause(1.0)
            if self.chance.random() < self.tries_again:
                await self.try_again(pull)
            if self.chance.random() < 0.3:
                await self.github.close(pull)
            else:
                mine.append(pull)
            if len(mine) > MOST_OPEN:
                await self.github.close(mine.popleft())

    async def try_again(self, pull):
        """Wait for a failure, and ask for another try."""
        head = pull.head_sha
        if self.outcome(head, L4) == "success" or not await until(lambda: self._red(head), seconds=PATIENCE):
            return
        self.again.add(head)
        await self.github.comment(pull, "/oot rerun", pull.author)
        await self.pause(1.0)

    def _red(self, head):
        """Whether every backend has ended, and the failure is shown."""
        if self._began[head] < len(BACKENDS) or self._at_work[head]:
            return False
        runs = self.github.check_runs(UPSTREAM, head)
        return any((run.name, run.conclusion) == ("oot / tpu", "failure") for run in runs)

    def outcome(self, head_sha, backend):
        """Return how every run of a backend on a head ends: the same, however often it is dispatched."""
        fails = hashlib.sha256(f"{head_sha}{backend}".encode()).digest()[0] < 80
        return "failure" if fails and head_sha not in self.again else "success"

    async def _talker(self, who):
        number = who * 1_000_000
        while not self.calm.is_set():
            number += 1
            if not (await self.github.deliver("issues", labeled(number))).ok:
                await asyncio.sleep(0.2)  # nobody would listen

    async def _redeliver(self):
        while not self.calm.is_set():
            await self._redeliver_lost()
            await asyncio.sleep(0.2)  # nobody presses the button faster

    async def _redeliver_lost(self):
        log = self.github.deliveries
        for one in log[self._looked_at :]:
            self._lost[one.guid] = one
        for one in log[self._looked_at :]:
            if one.ok:
                self._lost.pop(one.guid, None)
        self._looked_at = len(log)
        for one in list(self._lost.values()):
            if not (await self.github.redeliver(one)).ok:
                break  # it is away: no use in trying the others
        taken = {one.guid for one in log[self._looked_at :] if one.ok}
        self._lost = {guid: one for guid, one in self._lost.items() if guid not in taken}

    async def _dispatched(self, dispatch):
        told = dispatch.client_payload["payload"]
        if told["action"] != "closed":
            self._begin(told["pull_request"]["head"]["sha"], self._first_attempt(dispatch))

    async def _run_again(self, run, _failed_only):
        dispatch = self._dispatch_of[run.id]
        self._begin(head_of(dispatch), self._attempt(dispatch, run))

    def _begin(self, head, work):
        self._began[head] += 1
        self._at_work[head] += 1

        async def counted():
            await work
            self._at_work[head] -= 1

        self._go_on(counted())

    async def _first_attempt(self, dispatch):
        run = await self.github.start_run(
            dispatch.repo, display_title=dispatch.event_type, actor=dispatch.app.bot_login
        )
        self._dispatch_of[run.id] = dispatch
        await self._attempt(dispatch, run)

    async def _attempt(self, dispatch, run):
        """What a backend's workflow does."""
        repo, attempt = dispatch.repo.full_name, run.run_attempt
        job = await self.github.start_job(run, "build")
        if repo != L1:
            await self._report(dispatch, run, attempt, "in_progress", None)
            await self.pause(0.5)
        conclusion = self.outcome(head_of(dispatch), repo)
        if repo != L1:
            await self._report(dispatch, run, attempt, "completed", conclusion)
        await self.github.finish_job(job, conclusion)
        await self.github.finish_run(run, conclusion)

    async def _report(self, dispatch, run, attempt, status, conclusion):
        """Report until there is an answer, as the action does."""
        repo, run_id = dispatch.repo.full_name, str(run.id)
        body = report_body(
            dispatch, status=status, conclusion=conclusion, job="build", run_id=run_id, attempt=attempt
        )
        key = (repo, dispatch.client_payload["delivery_id"], run_id, attempt)
        while True:
            token = self.issuer.mint(repository=repo, run_id=run_id, run_attempt=attempt)
            self.about_to("report")
            said = await self._post(body, token)
            if said is not None and said[0] == 200:
                self.reports[key] = (status, conclusion)
                return
            if said is not None and said[0] not in REFUSALS:
                self.wrong.append(f"report {key}: {said}")
                return
            self.unanswered += said is None
            await asyncio.sleep(0.1)  # what the action does too, with more patience

    async def _post(self, body, token):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.address()}/api/oot/callback"
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.http.post(url, json=body, headers=headers, timeout=DEADLINE) as answer:
                return answer.status, await answer.text()
        return None

    async def pause(self, most):
        """Do something else for a moment."""
        await asyncio.sleep(self.chance.uniform(0, most) / self.haste)


def head_of(dispatch):
    """Return the commit that a dispatch is about."""
    return dispatch.client_payload["payload"]["pull_request"]["head"]["sha"]


def labeled(number):
    """An issue of its own gets a label: two records."""
    at = "2026-01-02T03:04:05Z"
    return {
        "action": "labeled",
        "issue": {"id": number, "number": number, "title": "It is slow", "created_at": at, "updated_at": at},
        "label": {"id": 1, "name": "bug"},
        "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM, "private": False, "padding": "x" * 4_000},
    }
