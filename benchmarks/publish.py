"""Delay and number of writes to GitHub: an hour of pull requests on simulated time, real HTTP on loopback.

    python3 dev.py bench publish [--json]                       20 minutes of that load: two minutes on an idle machine
    python3 dev.py bench publish --minutes 60 --pushes 30       the whole hour, which takes twice that

30 pushes an hour meet 20 backends of 3 jobs each: 4 at L4, 4 at L3 with their label on, 12 at L2. One clock drives the
bot, GitHub and the backends (benchmarks/support/simulated.py). What was written, and when, is read from GitHub's own
log of calls; how stale a comment is, from what its text says. The bot's settings are its defaults.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from bisect import bisect_left
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.machine import describe, show
from benchmarks.support.simulated import simulation
from bot.core.log_output import configure

UPSTREAM = "example-org/project"
JOBS = 3
NAMES = [f"org-{number:02}/backend" for number in range(20)]
BLOCKING, LABELLED, WATCHED = NAMES[:4], NAMES[4:8], NAMES[8:]
SHOWN = {name: f"gpu-{at}" for at, name in enumerate(BLOCKING)}
SHOWN |= {name: f"npu-{at}" for at, name in enumerate(LABELLED)}
LABELS = [f"ciflow/oot/{SHOWN[name]}" for name in LABELLED]
REPORTS, WINDOW = 1000, 60.0  # of one head, seconds
MINUTE, HOUR = 60_000, 3_600_000  # milliseconds
FAILING = 0.1  # of the backends' runs
SAID = (  # the ways in which a line of the comment tells of jobs
    (re.compile(r"(\d+) done(?: \((\d+) failed\))?, (\d+) running"), lambda d, f, r: (d + r, d, f)),
    (re.compile(r"(\d+) of (\d+)(?: jobs)? failed(?:, (\d+) still)?"), lambda f, of, r: (of, of - r, f)),
    (re.compile(r"(\d+)(?: jobs?)? passed()()"), lambda p, *_: (p, p, 0)),
    (re.compile(r"being confirmed()()()"), lambda *_: (JOBS, JOBS, 0)),
)
LINE = re.compile(r"^(?:\| |- \S+ )`([^`]+)`(.*)$", re.MULTILINE)


def allowlist() -> str:
    lines = ["L2: [" + ", ".join(WATCHED) + "]"]
    for level, names in (("L3", LABELLED), ("L4", BLOCKING)):
        lines += [f"{level}:", *(f"  {SHOWN[name]}: {{{name}: [alice]}}" for name in names)]
    return "\n".join(lines) + "\n"


def simulated(**settings):
    return simulation(UPSTREAM, NAMES, allowlist(), writes_per_min=60, **settings)


class Crowd:
    """Twenty backends that run three jobs each for whatever they are sent."""

    def __init__(self, play, chance):
        self.play, self.chance = play, chance
        self.accepted = {}  # (head, backend) -> [(time, (reported, finished, failed))], as accepted
        self.failed = {}  # (head, backend) -> when its first failure was accepted
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
        fails = self.chance.random() < FAILING
        for job, end in enumerate(ends):
            await self.report(dispatch, run, job, "in_progress", "success")
            conclusion = "failure" if fails and job == 0 else "success"
            self.play.at(
                end,
                lambda job=job, conclusion=conclusion: self.report(
                    dispatch, run, job, "completed", conclusion
                ),
            )
        self.play.at(max(ends) + 5_000, lambda: self.over(dispatch, run, "failure" if fails else "success"))

    async def over(self, dispatch, run, conclusion) -> None:
        await self.play.github.finish_run(run, conclusion)
        if dispatch.repo.full_name in BLOCKING and conclusion == "success":
            self.passed[head_of(dispatch)] = self.play.clock.now()

    async def report(self, dispatch, run, job, status, conclusion) -> None:
        code, said = await self.play.bot.report(
            dispatch, status=status, conclusion=conclusion, job=f"job {job}", run_id=str(run.id)
        )
        assert code == 200, said
        key, now = (head_of(dispatch), dispatch.repo.full_name), self.play.clock.now()
        news = self.accepted.setdefault(key, [])
        reported, finished, failed = news[-1][1] if news else (0, 0, 0)
        if status == "in_progress":
            news.append((now, (reported + 1, finished, failed)))
        else:
            news.append((now, (reported, finished + 1, failed + (conclusion == "failure"))))
        if conclusion == "failure":
            self.failed.setdefault(key, now)


def head_of(dispatch) -> str:
    return dispatch.client_payload["payload"]["pull_request"]["head"]["sha"]


async def hour(options) -> dict:
    """The load of the first paragraph, and what of it was late."""
    async with simulated() as play:
        crowd = Crowd(play, random.Random(7))
        began, gap = play.clock.now(), options.minutes * MINUTE // options.pushes
        for number in range(options.pushes):
            play.at(
                began + number * gap,
                lambda: play.github.open_pull(UPSTREAM, labels=LABELS, author="octocat"),
            )
        await play.run(began + options.minutes * MINUTE + HOUR // 2)
        return measure(play, crowd) | {"pushes": options.pushes, "minutes": options.minutes}


def measure(play, crowd) -> dict:
    calls = [call for call in play.github.calls if call.status < 400 and "/app/" not in call.path]
    writes = [one for one in calls if one.method in {"POST", "PATCH"} and "/dispatches" not in one.path]
    created = [call.at for call in writes if call.method == "POST"]
    dispatched = [call.at for call in calls if call.path.endswith("/dispatches")]
    first, gates, verdicts = check_delays(play, crowd, writes)
    stale = staleness(play, crowd, writes)
    runs = [(run.head_sha, run.name) for run in play.github.check_runs_all(UPSTREAM)]
    talks = [comment.pull.number for comment in play.github.state.repo(UPSTREAM).comments.values()]
    return {
        "reports accepted": sum(map(len, crowd.accepted.values())),
        "writes": len(writes),
        "creations": len(created),
        "refused or limited by GitHub": sum(call.status >= 400 for call in play.github.calls),
        "most writes in a second (at most 1)": most([call.at for call in writes], 1000),
        "most creations in a minute (at most 60)": most(created, MINUTE),
        "most creations in an hour (at most 400)": most(created, HOUR),
        "most dispatches in a minute (at most 180)": most(dispatched, MINUTE),
        "push to first gate, median and most s": spread(first),
        "verdict known to gate, median and most s (at most 60)": spread(gates),
        "failure accepted to check run, median and most s": spread(verdicts),
        "comment stale, median and most s (at most 300)": spread(stale),
        "pull requests with a comment": len(set(talks)),
        "made more than once: check runs, comments (0)": [
            len(runs) - len(set(runs)),
            len(talks) - len(set(talks)),
        ],
    }


def most(times: list[int], window: int) -> int:
    """The most that fell into any window."""
    found, first = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - window:
            first += 1
        found = max(found, last - first + 1)
    return found


def spread(delays: list[int]) -> list[float]:
    return [round(statistics.median(delays) / 1000, 2), round(max(delays) / 1000, 2)]


def check_delays(play, crowd, writes) -> tuple[list[int], list[int], list[int]]:
    """From a push to its first gate, from what decides a gate to the gate, from a failure to the check run."""
    first, gates, verdicts = [], [], []
    written: dict[tuple[str, str], list] = {}
    runs = play.github.state.repo(UPSTREAM).check_runs
    for call in writes:
        if "check-runs" in call.path:
            number = call.path.rpartition("/")[
                2
            ]  # of a check run that is changed, which does not say its commit
            sha = runs[int(number)].head_sha if number.isdigit() else call.body["head_sha"]
            written.setdefault((sha, call.body["name"]), []).append(call)
    for pull in play.github.state.repo(UPSTREAM).pulls.values():
        head, mine = pull.head_sha, written[pull.head_sha, "oot / gate"]
        failures = [at for (sha, name), at in crowd.failed.items() if sha == head and name in BLOCKING]
        first.append(mine[0].at - pull.created_at)
        gates.append(concluded(mine) - min(failures, default=crowd.passed.get(head, 0)))
    for (head, name), at in crowd.failed.items():
        if name in SHOWN:
            verdicts.append(concluded(written[head, f"oot / {SHOWN[name]}"]) - at)
    return first, gates, verdicts


def concluded(calls) -> int:
    return min(call.at for call in calls if call.body["status"] == "completed")


def staleness(play, crowd, writes) -> list[int]:
    """For each report accepted: until when the comment said less. Before there is one only a failure is owed."""
    texts: dict[int, list[tuple[int, dict]]] = {}
    comments = play.github.state.repo(UPSTREAM).comments
    made = iter(sorted(comments.values(), key=lambda comment: comment.id))
    for call in writes:
        if "/comments" in call.path:
            new = call.path.endswith("/comments")
            comment = next(made) if new else comments[int(call.path.rpartition("/")[2])]
            texts.setdefault(comment.pull.number, []).append((call.at, said(call.body["body"])))
    pulls = {pull.head_sha: pull.number for pull in play.github.state.repo(UPSTREAM).pulls.values()}
    delays = []
    for (head, name), news in crowd.accepted.items():
        written = texts.get(pulls[head], [])
        for at, truth in news:
            if truth[2] or (written and written[0][0] <= at):
                right = [
                    when
                    for when, text in written[bisect_left(written, at, key=lambda one: one[0]) :]
                    if all(a >= b for a, b in zip(text.get(name, (0, 0, 0)), truth, strict=True))
                ]
                assert right, f"never said: {name} on {head} {truth}"
                delays.append(right[0] - at)
    return delays


def said(body: str) -> dict[str, tuple[int, int, int]]:
    """What a comment says of each backend: jobs reported, finished, failed."""
    labels = {label: name for name, label in SHOWN.items()}
    found = {}
    for label, words in LINE.findall(body):
        for pattern, counts in SAID:
            if match := pattern.search(words):
                found.setdefault(labels.get(label, label), counts(*(int(n or 0) for n in match.groups())))
                break
    return found


async def idle() -> dict:
    """From an accepted report to the check run, the bot otherwise idle: real time, and the budget's waiting with it."""
    async with simulated() as play:
        for _ in range(2):
            await play.github.open_pull(UPSTREAM, labels=LABELS, author="octocat")
        await play.run(play.clock.now() + 2 * MINUTE)
        play.clock.let_run()
        working = asyncio.create_task(play.bot.worker.run())
        took = {BLOCKING[0]: [], LABELLED[0]: []}
        for number in range(-1, 2 * len(SHOWN) - 1):
            name = list(SHOWN)[number % len(SHOWN)]
            dispatch = play.bot.dispatch(name, number // len(SHOWN))
            run = await play.github.start_run(name, event="repository_dispatch", name="CI")
            for status in ("in_progress", "completed"):
                await play.quiet()
                play.clock.leap(MINUTE)
                play.bot.store.work_waiting.set()
                await play.quiet()
                play.clock.leap(2_000)  # since the last write: one a second
                conclusion = "failure" if number % 2 else "success"
                group = BLOCKING[0] if name in BLOCKING else LABELLED[0]
                took[group].append(await until_written(play, dispatch, run, status, conclusion))
        play.bot.worker.stop()
        await working
        return {
            f"accepted to check run, {what}, median and most s (median under 1)": spread(found)
            for what, found in (("level 4", took[BLOCKING[0]]), ("level 3", took[LABELLED[0]]))
        } | {"of that, all": spread([*took[BLOCKING[0]], *took[LABELLED[0]]])}


async def until_written(play, dispatch, run, status, conclusion) -> float:
    """Report, and wait for the check run that says so; returns milliseconds since the answer."""
    before, name = len(play.github.calls), f"oot / {SHOWN[dispatch.repo.full_name]}"
    code, said = await play.bot.report(dispatch, status=status, conclusion=conclusion, run_id=str(run.id))
    accepted = time.perf_counter()
    assert code == 200, said
    while not written(play.github.calls[before:], name):  # noqa: ASYNC110 - GitHub does not tell
        await asyncio.sleep(0.002)
    return (time.perf_counter() - accepted) * 1000


def written(calls, name) -> bool:
    """Whether its check run was changed; below L4 the first report makes it."""
    return any(call.method in {"POST", "PATCH"} and (call.body or {}).get("name") == name for call in calls)


async def burst() -> dict:
    """A thousand reports on one head within a minute."""
    async with simulated(rate_limit_per_min=2 * REPORTS) as play:
        await play.github.open_pull(UPSTREAM, author="octocat")
        await play.run(play.clock.now() + MINUTE // 2)
        start, before = play.clock.now(), len(play.github.calls)
        token = play.issuer.mint(repository=NAMES[0], run_id="1", run_attempt=1)
        dispatch = play.bot.dispatch(NAMES[0])
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


async def measured(options) -> dict:
    return {**await idle(), **await burst(), **await hour(options)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--pushes", type=int, default=10, help="in those minutes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    configure(fmt="json", level="error")
    began = time.process_time()
    result = {
        "name": "publish",
        "machine": describe(),
        "rounds": 1,
        "ours": uvloop.run(measured(options)),
        "peers": {},
        "ratios": {},
    }
    result["ours"]["processor seconds of all this"] = round(time.process_time() - began)
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
