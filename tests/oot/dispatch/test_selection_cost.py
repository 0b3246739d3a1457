"""What selection costs: a push to 100 backends whose `paths` match takes at most a tenth more processor time."""

import gc
import time

import pytest

from tests.flows.scenarios import dispatched_to
from tests.harness import UPSTREAM
from tests.oot.dispatch.selected import asked_for_files

pytestmark = [pytest.mark.logic, pytest.mark.nightly]
BACKENDS, ROUNDS, MOST = 100, 7, 1.10
FILES = {f"torch/csrc/file{number}.cpp": "x" for number in range(20)}


def listed(paths):
    entries = (f"{{repo: org/b{one}, events: [push]{paths.format(one)}}}" for one in range(BACKENDS))
    return f"L2: [{', '.join(entries)}]"


async def cost(bot, github):
    """Processor seconds of recording one push and sending it everywhere, GitHub's part included."""
    before = len(github.dispatches)
    await github.push(UPSTREAM, files=FILES)
    gc.collect()
    began = time.process_time()
    await bot.settle()
    took = time.process_time() - began
    assert len(dispatched_to(github)) == before + BACKENDS
    return took


async def test_a_push_to_many_backends_costs_hardly_more_with_paths(bot, github):
    for one in range(BACKENDS):
        github.add_repo(f"org/b{one}")
        github.install(f"org/b{one}", bot.app)
    plain, selective = listed(""), listed(', paths: ["torch/csrc/**", "!docs/b{0}/**", "!**/*.md"]')
    costs = {plain: [], selective: []}
    for _ in range(ROUNDS):
        for text, seen in costs.items():
            await bot.list_backends(text)
            seen.append(await cost(bot, github))
    first, second = (min(seen) for seen in costs.values())
    assert second <= first * MOST
    assert asked_for_files(github) == []
