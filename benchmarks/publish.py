"""How soon is it on GitHub, and how politely? An hour of pull requests on simulated time, real HTTP on loopback.

    python3 dev.py bench publish [--minutes 60] [--pushes 30] [--json]

30 pushes an hour meet 20 backends of 3 jobs each: 4 at L4, 4 at L3 with their label on, 12 at L2. One clock drives the
bot, GitHub and the backends; it stands still while anybody works, so the waiting is the bot's own: its budgets.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.machine import describe, show
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.logs import configure
from tests import harness

UPSTREAM = "example-org/project"
BLOCKING, LABELLED, WATCHED, JOBS = 4, 4, 12, 3
REPORTS, WINDOW = 1000, 60.0  # of one head, seconds
MINUTE, HOUR = 60_000, 3_600_000  # milliseconds


class Clock:
    """Time that moves only when everybody sleeps."""

    def __init__(self):
        self.at = 1_790_000_000_000
        self.sleeping = []
        self._order = itertools.count()

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self.sleeping, (self.at + round(seconds * 1000), next(self._order), woken))
        await woken

    def move_to(self, at: int) -> None:
        self.at = max(self.at, at)
        while self.sleeping and self.sleeping[0][0] <= self.at:
            heapq.heappop(self.sleeping)[2].set_result(None)


class Play:
    """Events in the order of their time, the bot working in between."""

    def __init__(self, bot, github, issuer, clock):
        self.bot, self.github, self.issuer, self.clock = bot, github, issuer, clock
        self._events, self._order = [], itertools.count()

    def at(self, moment: int, act) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    async def run(self, until: int) -> None:
        while True:
            await self._work()
            coming = [await self._task_due(), self._events[0][0] if self._events else None]
            coming += [self.clock.sleeping[0][0]] if self.clock.sleeping else []
            moment = min((at for at in coming if at is not None), default=until + 1)
            if moment > until:
                return
            self.clock.move_to(moment)
            while self._events and self._events[0][0] <= moment:
                await heapq.heappop(self._events)[2]()

    async def drain(self) -> None:
        """Let what sleeps now come to its end."""
        while self.clock.sleeping:
            self.clock.move_to(self.clock.sleeping[0][0])
            await self._asleep()

    async def _work(self) -> None:
        """Let the bot work until nothing is due and every task sleeps."""
        worker = self.bot.worker
        while True:
            moved = await worker.apply() + await worker._start_tasks()  # noqa: SLF001 - what `step` does, unfinished
            await self._asleep()
            await self.github.settled()
            if not moved and not await self._ready():
                return

    async def _asleep(self) -> None:
        """Wait until every task sleeps or has ended: real work, of which nobody tells."""
        while len(self.bot.worker._running) > len(self.clock.sleeping):  # noqa: SLF001, ASYNC110 - see above
            await asyncio.sleep(0)

    async def _ready(self) -> bool:
        due = await self._task_due()
        return due is not None and due <= self.clock.at and len(self.bot.worker._running) < 20  # noqa: SLF001 - slots

    async def _task_due(self) -> int | None:
        async with self.bot.store.read() as tx:
            rows = await tx.run(TASKS)
            times = [at for at in (*rows.scalars(), await harness.inbox.next_due(tx)) if at is not None]
        return min(times, default=None)


TASKS = harness.sa.text(
    "SELECT min(t.due_at) FROM task t WHERE t.state = 'waiting' AND NOT EXISTS ("
    "SELECT 1 FROM task r WHERE r.state = 'running' AND r.kind = t.kind AND r.key = t.key)"
)


def backends() -> dict[str, list[str]]:
    names = [f"org-{number:02}/backend" for number in range(BLOCKING + LABELLED + WATCHED)]
    return {
        "L4": names[:BLOCKING],
        "L3": names[BLOCKING : BLOCKING + LABELLED],
        "L2": names[BLOCKING + LABELLED :],
    }


def allowlist() -> str:
    listed = backends()
    lines = ["L2: [" + ", ".join(listed["L2"]) + "]", "L3:"]
    lines += [f"  npu-{at}: {{{name}: [alice]}}" for at, name in enumerate(listed["L3"])]
    lines += ["L4:"]
    lines += [f"  gpu-{at}: {{{name}: [alice]}}" for at, name in enumerate(listed["L4"])]
    return "\n".join(lines) + "\n"


class Crowd:
    """Twenty backends that run three jobs each for whatever they are sent."""

    def __init__(self, play, chance):
        self.play, self.chance = play, chance
        self.accepted = []  # (head, time, conclusion) of each report
        self.failed = {}  # head -> when the first blocking failure was reported
        self.passed = {}  # head -> when GitHub said that the last blocking run ended well
        play.github.on_dispatch = self.begin

    async def begin(self, dispatch) -> None:
        if dispatch.client_payload["payload"].get("action") == "closed":
            return
        start = self.play.clock.now() + self.chance.randrange(5_000, 120_000)
        ends = [start + self.chance.randrange(120_000, 1_500_000) for _ in range(JOBS)]
        self.play.at(start, lambda: self.run(dispatch, ends))

    async def run(self, dispatch, ends) -> None:
        run = await self.play.github.start_run(dispatch.repo, event="repository_dispatch", name="CI")
        fails = self.chance.random() < 0.1
        token = self.play.issuer.mint(repository=dispatch.repo.full_name, run_id=str(run.id), run_attempt=1)
        for job, end in enumerate(ends):
            await self.report(dispatch, run, token, job, "in_progress", "success")
            conclusion = "failure" if fails and job == 0 else "success"
            self.play.at(end, lambda job=job, conclusion=conclusion: self.end(dispatch, run, job, conclusion))
        over = "failure" if fails else "success"
        self.play.at(max(ends) + 5_000, lambda: self.over(dispatch, run, over))

    async def over(self, dispatch, run, conclusion) -> None:
        await self.play.github.finish_run(run, conclusion)
        if dispatch.repo.full_name in backends()["L4"] and conclusion == "success":
            self.passed[head_of(dispatch)] = self.play.clock.now()

    async def end(self, dispatch, run, job, conclusion) -> None:
        token = self.play.issuer.mint(repository=dispatch.repo.full_name, run_id=str(run.id), run_attempt=1)
        await self.report(dispatch, run, token, job, "completed", conclusion)

    async def report(self, dispatch, run, token, job, status, conclusion) -> None:
        code, said = await self.play.bot.report(
            dispatch, status=status, conclusion=conclusion, job=f"job {job}", run_id=str(run.id), token=token
        )
        assert code == 200, said
        head, now = head_of(dispatch), self.play.clock.now()
        self.accepted.append((head, now, conclusion))
        if conclusion == "failure" and dispatch.repo.full_name in backends()["L4"]:
            self.failed.setdefault(head, now)


def head_of(dispatch) -> str:
    return dispatch.client_payload["payload"]["pull_request"]["head"]["sha"]


async def hour(options) -> dict:
    """The load of the first paragraph, and what of it was late."""
    async with stage(writes_per_min=60) as play:
        crowd = Crowd(play, random.Random(7))
        listed = backends()
        labels = [f"ciflow/oot/npu-{at}" for at in range(len(listed["L3"]))]
        began = play.clock.now()
        gap = options.minutes * MINUTE // options.pushes
        for number in range(options.pushes):
            play.at(
                began + number * gap,
                lambda: play.github.open_pull(UPSTREAM, labels=labels, author="octocat"),
            )
        await play.run(began + options.minutes * MINUTE + HOUR // 2)
        return measure(play, crowd) | {"pushes": options.pushes, "minutes": options.minutes}


def measure(play, crowd) -> dict:
    calls = [call for call in play.github.calls if call.status < 400 and "/app/" not in call.path]
    writes = [
        call for call in calls if call.method in {"POST", "PATCH"} and not call.path.endswith("/dispatches")
    ]
    created = [call.at for call in writes if call.method == "POST"]
    gates = gate_delays(play, crowd, writes)
    return {
        "reports accepted": len(crowd.accepted),
        "writes": len(writes),
        "creations": len(created),
        "most writes in a second": most(sorted(call.at for call in writes), 1000),
        "most creations in a minute (budget 60)": most(created, MINUTE),
        "most creations in an hour (budget 400)": most(created, HOUR),
        "most dispatches in a minute (budget 180)": most(
            [call.at for call in calls if call.path.endswith("/dispatches")], MINUTE
        ),
        "gate behind what decided it, median s": round(sorted(gates)[len(gates) // 2] / 1000, 1),
        "gate behind what decided it, most s (at most 60)": round(max(gates) / 1000, 1),
        "comment behind a failure, most s (at most 300)": round(max(comment_delays(play, crowd)) / 1000, 1),
        "checks made more than once": twice(play),
    }


def most(times: list[int], window: int) -> int:
    """The most that fell into any window."""
    found, first = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - window:
            first += 1
        found = max(found, last - first + 1)
    return found


def gate_delays(play, crowd, writes) -> list[int]:
    """From the push to the first gate, and from what decided it to the gate that says so."""
    gates = [call for call in writes if "check-runs" in call.path and call.body["name"] == "oot / gate"]
    delays = []
    for pull in play.github.world.repo(UPSTREAM).pulls.values():
        mine = [call for call in gates if call.body["head_sha"] == pull.head_sha]
        decided = crowd.failed.get(pull.head_sha, crowd.passed.get(pull.head_sha))
        concluded = min(call.at for call in mine if call.body["status"] == "completed")
        delays += [min(call.at for call in mine) - pull.created_at, concluded - decided]
    return delays


def comment_delays(play, crowd) -> list[int]:
    """From a report of a failure to the first comment write after it."""
    pulls = {pull.head_sha: pull.number for pull in play.github.world.repo(UPSTREAM).pulls.values()}
    written: dict[int, list[int]] = {}
    for comment in play.github.world.repo(UPSTREAM).comments.values():
        written.setdefault(comment.pull.number, []).append(comment.created_at)
    for call in play.github.calls:
        if call.method == "PATCH" and "/issues/comments/" in call.path and call.status == 200:
            found = play.github.world.repo(UPSTREAM).comments[int(call.path.rpartition("/")[2])]
            written[found.pull.number].append(call.at)
    delays = [0]
    for head, at, conclusion in crowd.accepted:
        if conclusion == "failure":
            later = [one for one in written.get(pulls[head], []) if one >= at]
            assert later, "a failure nobody was told of"
            delays.append(min(later) - at)
    return delays


def twice(play) -> int:
    runs = [(run.head_sha, run.name) for run in play.github.check_runs_all(UPSTREAM)]
    return len(runs) - len(set(runs))


async def idle(rounds: int) -> dict:
    """From an accepted report to the check run, real time, nothing else to do."""
    async with stage(writes_per_min=6000) as play:
        await play.github.open_pull(UPSTREAM, author="octocat")
        await play.run(play.clock.now())
        name = backends()["L4"][0]
        took = []
        for number in range(rounds):
            run = await play.github.start_run(name, event="repository_dispatch", name="CI")
            await play.run(play.clock.now())
            before = len(play.github.calls)
            code, _ = await play.bot.report(
                play.bot.dispatch(name), conclusion="failure", job=f"job {number}", run_id=str(run.id)
            )
            assert code == 200
            accepted = time.perf_counter()
            await play.run(play.clock.now() + 1000)
            took.append(time.perf_counter() - accepted)
            assert [call for call in play.github.calls[before:] if call.method == "PATCH"]
            play.clock.move_to(play.clock.now() + MINUTE)
        return {"report accepted to check run written, median ms": round(sorted(took)[rounds // 2] * 1000, 1)}


async def burst() -> dict:
    """A thousand reports on one head within a minute."""
    async with stage(writes_per_min=60, rate_limit_per_min=2 * REPORTS) as play:
        await play.github.open_pull(UPSTREAM, author="octocat")
        began = play.clock.now()
        await play.run(began + 30_000)
        name, start = backends()["L4"][0], play.clock.now()
        before = len(play.github.calls)
        token = play.issuer.mint(repository=name, run_id="1", run_attempt=1)
        dispatch = play.bot.dispatch(name)
        for number in range(REPORTS):
            status = ("in_progress", "completed")[number % 2]
            play.at(
                start + round(number * WINDOW * 1000 / REPORTS),
                lambda number=number, status=status: play.bot.report(
                    dispatch, status=status, job=f"job {number // 2}", run_id="1", token=token
                ),
            )
        await play.run(start + round(WINDOW * 1000))
        calls = [call for call in play.github.calls[before:] if call.method in {"POST", "PATCH"}]
        writes = [call for call in calls if "/app/" not in call.path]
        return {f"writes for {REPORTS} reports on one head in {WINDOW:.0f} s (at most 60)": len(writes)}


class stage:  # noqa: N801 - used like a function
    """A GitHub, an issuer and a bot on a clock of their own."""

    def __init__(self, **settings):
        self._settings = settings

    async def __aenter__(self) -> Play:
        self._folder = tempfile.TemporaryDirectory()
        clock = Clock()
        self._github, self._issuer = SimulatedGitHub(clock=clock), Issuer(clock=clock)
        await self._github.start()
        await self._issuer.start()
        app = self._github.register_app(webhook_url=None, webhook_secret=harness.SECRET)
        self._github.add_repo(UPSTREAM)
        for name in itertools.chain(*backends().values()):
            self._github.add_repo(name)
        folder = Path(self._folder.name)
        (folder / "allowlist.yml").write_text(allowlist())
        settings = harness.make_settings(
            github=self._github, issuer=self._issuer, app=app, folder=folder,
            upstream_repo=(UPSTREAM,), **self._settings,
        )  # fmt: skip
        self._bot = harness.running(settings, github=self._github, issuer=self._issuer, app=app, clock=clock)
        bot = await self._bot.__aenter__()
        self._play = Play(bot, self._github, self._issuer, clock)
        return self._play

    async def __aexit__(self, *error):
        await self._play.drain()
        await self._bot.__aexit__(*error)
        await self._issuer.stop()
        await self._github.stop()
        self._folder.cleanup()


async def measured(options) -> dict:
    return {**await idle(options.rounds), **await burst(), **await hour(options)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--pushes", type=int, default=30, help="in those minutes")
    parser.add_argument("--rounds", type=int, default=30, help="of the measurement with an idle queue")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    configure(fmt="json", level="error")
    result = {
        "name": "publish",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": asyncio.run(measured(options)),
        "peers": {},
        "ratios": {},
    }
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
