"""A device's label asks for its check run: whenever it is added, removed and added again, on every head."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest

from bot.demo.github import payloads
from bot.oot.publish.desired_checks import LABEL_GONE
from bot.oot.results import dispatches, jobs
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

TWO_DEVICES = f"""
L3:
  npu: {{{L3}: {{oncalls: [carol], answers: all}}}}
  fpga: {{{L2}: {{oncalls: [bob], answers: all}}}}
L4: [{{{L4}: [dave]}}]
"""
SHOWN = "ciflow/oot/npu"


def npu(bot, sha):
    found = bot.checks(UPSTREAM, sha).get("oot / npu")
    return found and found[:2]


async def report(bot, github, step):
    if step == "begin":
        await bot.report(bot.dispatch(L3), status="in_progress")
    elif step == "end":
        await bot.report(bot.dispatch(L3), conclusion="success")


@SQLITE
@pytest.mark.parametrize("prefix", ["ciflow/oot/", "ciflow/crcr/"])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
async def test_it_may_come_before_during_or_after_the_run(bot, github, prefix, at):
    pull = await github.open_pull(UPSTREAM, labels=[f"{prefix}npu"] if at == 0 else [])
    await bot.settle()
    for moment, step in enumerate(("begin", "end"), start=1):
        if at == moment:
            await github.label(pull, f"{prefix}npu")
        await report(bot, github, step)
        await bot.settle()
    if at == 3:
        await bot.wait(3 * 24 * 3600)
        assert npu(bot, pull.head_sha) is None
        await github.label(pull, f"{prefix}npu")
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")


@pytest.mark.logic
async def test_the_case_a_label_was_created_in_makes_no_difference(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=["CIFlow/OOT/NPU"])
    await bot.settle()
    await report(bot, github, "end")
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "order", sorted(set(itertools.permutations(("begin", "end", "on", "off", "on"))))[::3]
)
async def test_in_the_end_only_what_is_on_counts(bot, github, order):
    """A report of the beginning that comes last is refused, as always: the verdict is the same."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for step in order:
        bot.clock.advance(2)
        if step == "on":
            await github.label(pull, SHOWN)
        elif step == "off":
            await github.unlabel(pull, SHOWN)
        else:
            await report(bot, github, step)
        await bot.settle()
    bot.clock.advance(2)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=30)
    assert npu(bot, pull.head_sha) == ("completed", "success")
    made = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    assert len(made) == 1


@pytest.mark.logic
async def test_two_devices_are_shown_apart(bot, github):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(TWO_DEVICES)
    bot.clock.advance(60)
    await bot.settle()
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/fpga"])
    await bot.settle()
    shown = set(bot.checks(UPSTREAM, pull.head_sha)) - {"oot / gate"}
    assert shown == {"oot / fpga", f"oot / {L4}"}
    bot.clock.advance(5)
    await github.label(pull, SHOWN)
    await github.unlabel(pull, "ciflow/oot/fpga")
    await bot.settle(horizon=20)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / fpga"][:2] == ("completed", "neutral")
    assert checks["oot / npu"][:2] == ("queued", None)


@pytest.mark.logic
async def test_a_label_of_another_devices_name_shows_nothing(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu2", "ciflow/npu", "npu"])
    await bot.settle()
    assert npu(bot, pull.head_sha) is None


@pytest.mark.logic
async def test_a_reopened_pull_request_and_a_new_head_show_it_again(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), run_id="1", conclusion="cancelled")
    await bot.settle()
    first = pull.head_sha
    bot.clock.advance(60)
    await github.close(pull)
    await bot.settle()
    bot.clock.advance(60)
    await github.reopen(pull)
    await bot.settle(horizon=20)
    assert npu(bot, first) == ("queued", None)
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id="2")
    await bot.settle()
    assert npu(bot, first) == ("completed", "neutral")
    bot.clock.advance(60)
    second = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, second) == ("queued", None)
    assert npu(bot, first) == ("completed", "neutral")


@pytest.mark.logic
async def test_a_label_that_went_before_the_new_head_is_not_shown_on_it(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    bot.clock.advance(60)
    await github.unlabel(pull, SHOWN)
    head = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, head) is None


@pytest.mark.logic
async def test_a_label_shows_nothing_new_on_heads_that_were_overtaken(bot, github):
    pull = await github.open_pull(UPSTREAM)
    heads = [pull.head_sha]
    for _ in range(3):
        await bot.settle(horizon=20)
        bot.clock.advance(60)
        heads.append(await github.push_commit(pull))
    await bot.settle(horizon=20)
    bot.clock.advance(60)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=20)
    assert [npu(bot, sha) for sha in heads] == [None, None, None, ("queued", None)]


@pytest.mark.logic
async def test_what_was_shown_on_an_overtaken_head_is_concluded_and_not_begun_again(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle(horizon=20)
    first, dispatch = pull.head_sha, bot.dispatch(L3)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    for step in (github.unlabel, github.label):
        bot.clock.advance(60)
        await step(pull, SHOWN)
        await bot.settle(horizon=20)
    assert npu(bot, first) == ("completed", "neutral")
    await bot.report(dispatch, conclusion="failure")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, first)["oot / npu"][2] == LABEL_GONE
    assert npu(bot, pull.head_sha) == ("queued", None)


@pytest.mark.logic
async def test_an_unfinished_check_of_an_older_run_ends_when_a_newer_one_takes_its_place(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress", run_id="1")
    await bot.settle(horizon=20)
    bot.clock.advance(60)
    await github.comment(pull, "/oot run npu", "carol")
    await bot.wait(60)
    made = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    assert [(run.status, run.conclusion) for run in made] == [("completed", "neutral"), ("queued", None)]


@pytest.mark.logic
async def test_a_level_lowered_below_checks_still_concludes_what_was_begun(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle(horizon=20)
    (bot.context.settings.data_dir / "allowlist.yml").write_text(f"L2: [{L3}]")
    bot.clock.advance(60)
    await bot.settle()
    await bot.report(bot.dispatch(L3))
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")
    head = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, head) is None


# One second of GitHub's clock


@pytest.mark.logic
@pytest.mark.parametrize("last", ["labeled", "unlabeled"])
@pytest.mark.parametrize("swapped", [False, True])
async def test_labels_of_one_second_end_as_github_shows_them(bot, github, last, swapped):
    """Off and on within a second look alike in time: whichever delivery comes last, GitHub is asked."""
    bot.app.webhook_url = None
    pull = await github.open_pull(UPSTREAM)
    bot.app.webhook_url = f"{bot.url}/api/github/webhooks"
    github.state.deliveries.clear()
    opened = pulled(github, pull, "opened")
    await bot.send("pull_request", opened)
    await bot.settle()
    bot.clock.advance(60)
    steps = ["labeled", "unlabeled"] if last == "unlabeled" else ["labeled", "unlabeled", "labeled"]
    bodies = []
    for step in steps:
        change = pull.labels.append if step == "labeled" else pull.labels.remove
        change(SHOWN)
        pull.updated_at = github.state.now()
        bodies.append(pulled(github, pull, step, label={"id": 9, "name": SHOWN}))
    for body in reversed(bodies) if swapped else bodies:
        await bot.send("pull_request", body)
    await bot.settle(horizon=20)
    shown = npu(bot, pull.head_sha)
    assert shown == (("queued", None) if last == "labeled" else None)
    await bot.report(bot.dispatch(L3), conclusion="failure")
    await bot.wait(60)
    assert ["@carol" in one.body for one in github.comments(pull)] == ([True] if last == "labeled" else [])
    if last == "labeled":
        return
    bot.clock.advance(5)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "neutral")


@pytest.mark.logic
async def test_while_nothing_is_in_doubt_github_is_not_asked_for_labels(bot, github):
    pull = await github.open_pull(UPSTREAM)
    for on in (True, False, True):
        bot.clock.advance(2)
        await (github.label if on else github.unlabel)(pull, SHOWN)
        await bot.settle(horizon=20)
    await report(bot, github, "end")
    await bot.settle(horizon=20)
    assert not [call for call in github.calls if call.path.endswith("/labels")]


def pulled(github, pull, action, **extra):
    """The body of a pull_request event as GitHub sends it now."""
    event = payloads.pull_request(github.state, pull, action, "alice", **extra)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])


# Does a pull request with a long past cost no more than one that was just opened, and is nothing of it forgotten?


HEADS, JOBS = 60, 50
ADDRESS = f"/api/oot/pulls/{UPSTREAM}/1"


async def grow_old(bot, *, backends=1, most=JOBS, **said):
    """Give the pull request earlier heads, on each of which some backends have a failed run of so many jobs."""
    like = bot.dispatch(L4).client_payload["delivery_id"]
    rows = await bot.rows("oot_dispatch")
    told = next(row for row in rows if (row["delivery_id"], row["backend"]) == (like, L4))
    job = next(row for row in await bot.rows("oot_workflow_job") if row["dispatch_id"] == told["id"])
    async with bot.context.store.transaction() as tx:
        for head, backend in itertools.product(range(HEADS), range(backends)):
            identifier, name = f"{head:016}{backend:016}", f"org/old-{backend}"
            at = {"delivery_id": f"old {head}", "head_sha": f"{head:040}"}
            whose = {"id": identifier, "backend": name, "backend_key": name}
            await dispatches.add_dispatch(
                tx, told | at | whose | {"created_at": told["created_at"] - HEADS + head}
            )
            like = job | said | at | {"dispatch_id": identifier, "downstream_repo": name}
            made = [like | {"job_name": f"job {one}"} for one in range(most)]
            await jobs.add_jobs(
                tx, {key: row | {"job_key": key} for row in made for key in [jobs.job_key(row)]}
            )


async def peak(doing):
    """Return the bytes that something needed at most, above what there was."""
    tracemalloc.start()
    try:
        await doing
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@SQLITE
async def test_what_is_read_of_a_pull_request_does_not_grow_with_its_past(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=90)

    async def asked():
        await github.comment(pull, "/oot status", pull.author)
        await bot.settle(horizon=90)

    young = await peak(asked())
    await grow_old(bot)
    assert await peak(asked()) < young + 4_000_000  # bytes; all heads at once take 8,500,000
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_as_json_it_has_so_many_jobs_and_says_that_there_are_more(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    _, young = await bot.get(ADDRESS)
    assert (len(young["jobs"]), young["more"]) == (1, False)
    await grow_old(bot)
    _, old = await bot.get(ADDRESS)
    assert (len(old["jobs"]), old["more"], len(old["heads"])) == (1_000, True, 1 + HEADS)
    _, few = await bot.get(f"{ADDRESS}?limit=7")
    assert few["jobs"] == old["jobs"][-7:]
    _, one = await bot.get(f"{ADDRESS}?sha={0:040}")
    assert (len(one["jobs"]), one["more"]) == (JOBS, False)
    assert one["backends"][0]["state"] == "failure"


@SQLITE
async def test_of_very_many_dispatches_only_the_shown_heads_are_judged(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await grow_old(bot, backends=6, most=1)
    _, body = await bot.get(f"{ADDRESS}?sha={0:040}")
    counts = {head["sha"]: head["backends"] for head in body["heads"]}
    assert counts.pop(f"{0:040}") == {"failure": 6}
    assert set(map(str, counts.values())) == {"None"}
    status, page = await bot.get(f"/{UPSTREAM}/pull/1?sha={0:040}")
    assert (status, page.count("job 0") >= 6) == (200, True)


async def test_of_very_many_failed_tests_those_of_the_newest_jobs_are_shown(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await grow_old(
        bot, most=20, failed_tests=1, failed_tests_json=[{"name": "x" * 1_000, "message": "y" * 9_000}]
    )
    for path in (ADDRESS, "/api/oot/backends/org/old-0?limit=500", f"/api/oot/commits/{UPSTREAM}/00000000"):
        _, body = await bot.get(path)
        told = [bool(row["failed_tests_json"]) for row in body["jobs"]]
        assert len(body["jobs"]) >= 200
        assert sum(told) * 10_000 <= 8_000_000
        assert any(told)
    status, page = await bot.get("/oot/org/old-0")
    assert (status, len(page) < 200_000) == (200, True)


# Labels, reports, the sweep and a re-run in any order, for an L3 and an L4 backend and the gate.


EVENTS = ("on", "a1", "b1", "a2", "b2", "off", "sweep", "rerun")
AFTER = {"a2": "a1", "b2": "b1", "rerun": "a2", "off": "on"}  # nothing is run again before it has failed
LABEL = "ciflow/oot/npu"
ORDERS = 105


def orders(count):
    """Orders in which what ends has begun and the re-run finds a failure; always the same ones."""

    def possible(order):
        return all(order.index(first) < order.index(then) for then, first in AFTER.items())

    every = [order for order in itertools.permutations(EVENTS) if possible(order)]
    return random.Random(5).sample(every, count)


class Story:
    """One order of events on a pull request of its own; both backends do the same."""

    def __init__(self, bot, github, pull, runs):
        self.bot, self.github, self.pull, self.runs = bot, github, pull, runs

    async def apply(self, event):
        match event:
            case "on":
                await self.github.label(self.pull, LABEL)
            case "off":
                await self.github.unlabel(self.pull, LABEL)
            case "rerun":
                await self.github.comment(self.pull, "/oot rerun npu tpu", "alice")
            case "a1" | "a2" | "b1" | "b2":
                job, conclusion = {"a": ("unit", "failure"), "b": ("docs", "success")}[event[0]]
                await self.report(event[1], job=job, conclusion=conclusion)

    async def report(self, end, **about):
        status = "in_progress" if end == "1" else "completed"
        for dispatch, run in self.runs:
            answer = await self.bot.report(dispatch, status=status, run_id=str(run.id), **about)
            assert answer[0] == 200

    async def end_first_attempt(self):
        for _, run in self.runs:
            await self.github.finish_job(await self.github.start_job(run, "unit"), "failure")
            await self.github.finish_run(run, "failure")

    async def end(self):
        for _, run in self.runs:
            await self.github.finish_run(run, "success")

    def told(self):
        """What the checks say, without the time it took."""
        checks = self.bot.checks(UPSTREAM, self.pull.head_sha)
        return {
            name: (status, conclusion, title.partition(" in ")[0])
            for name, (status, conclusion, title) in checks.items()
        }


async def played(bot, github, orders):
    """Play orders side by side that have the sweep in one place; return what the checks say in the end."""
    stories = []
    for _ in orders:
        pull = await github.open_pull(UPSTREAM)
        await bot.settle()
        runs = [
            (bot.dispatch(name), await github.start_run(name, event="repository_dispatch", name="CI"))
            for name in (L3, L4)
        ]
        stories.append(Story(bot, github, pull, runs))
    for events in zip(*orders, strict=True):
        bot.clock.advance(6 * 3600 + 60 if "sweep" in events else 20)
        for story, event in zip(stories, events, strict=True):
            await story.apply(event)
        await bot.settle(horizon=12)
    for story in stories:
        await story.apply("on")
        await story.end_first_attempt()
    await bot.settle(horizon=60)
    for end in "12":
        for story in stories:
            await story.report(end, job="unit", attempt=2)
        await bot.settle(horizon=12)
    for story in stories:
        await story.end()
    await bot.settle(horizon=12)
    told = [story.told() for story in stories]
    for story in stories:
        await github.close(story.pull)
    await bot.settle()
    return told


# three of the orders each time, all with --nightly
@pytest.mark.parametrize(
    "part",
    [
        slice(None, None, 35),
        *(pytest.param(slice(first, None, 10), marks=pytest.mark.nightly) for first in range(10)),
    ],
    ids=lambda part: f"{part.start or 0}::{part.step}",
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_in_every_order_of_labels_reports_sweep_and_rerun_the_checks_end_alike(bot, github, part):
    allowlist = f"L3: {{npu: {{{L3}: {{oncalls: [carol], answers: all}}}}}}\nL4: {{tpu: {{{L4}: [dave]}}}}"
    (bot.context.settings.data_dir / "allowlist.yml").write_text(allowlist)
    await bot.wait(60)
    (natural,) = await played(bot, github, [EVENTS])
    assert natural == {
        "oot / npu": ("completed", "success", "2 jobs passed"),
        "oot / tpu": ("completed", "success", "2 jobs passed"),
        "oot / gate": ("completed", "success", "1 blocking backend passed"),
    }
    chosen = sorted(orders(ORDERS)[part], key=lambda order: order.index("sweep"))
    for _, alike in itertools.groupby(chosen, key=lambda order: order.index("sweep")):
        group = list(alike)
        ends = await played(bot, github, group)
        assert dict(zip(group, ends, strict=True)) == dict.fromkeys(group, natural)
