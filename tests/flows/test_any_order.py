"""Labels, reports, the sweep and a re-run in any order, for an L3 and an L4 backend and the gate."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.harness import L3, L4, UPSTREAM

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
