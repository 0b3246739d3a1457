"""A fleet of today, with `PRESET=crcr` and nothing else: a list of today's form, selective and nightly backends."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.interop import client, merge_guard
from tests.interop.client import Client
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

HOUR = 3600
TODAYS_LIST = f"""\
# who takes part, and whom to ask
L1:
  - {L1}
L2:
  - {L2}: alice, bob
L3:
  - npu:
      {L3}: [carol]
L4:
  - {L4}: dave
"""


async def test_a_day_of_a_fleet(bot, github):
    await bot.list_backends(TODAYS_LIST)
    pulls = [await github.open_pull(UPSTREAM, labels=["ciflow/crcr/npu"]) for _ in range(7)]
    await bot.settle()
    for number, pull in enumerate(pulls):  # the selective backend runs one of seven
        to_l4 = dispatch_of(github, L4, pull)
        run = await github.start_run(L4)
        step = client.of(bot, to_l4, run_id=str(run.id))
        await step.started()
        await step.ended("success" if number else "failure")
        await github.finish_run(run, "success" if number else "failure")
    selective = client.of(bot, dispatch_of(github, L3, pulls[0]))
    await selective.started()
    await selective.ended()
    await Client(bot, L2, run_id="77").nightly("buildkite-1234-test")
    await bot.wait(25 * HOUR)
    blocked = [merge_guard.objections(github, UPSTREAM, pull.head_sha, {L4}) for pull in pulls]
    assert blocked == [[f"crcr/{L4}/CI/build"], *[[]] * 6]
    gates = [bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] for pull in pulls]
    assert gates == ["failure", *["success"] * 6]
    _, summary = await bot.get("/api/oot/summary")
    numbers = {one["repo"]: one for one in summary["backends"]}
    assert (numbers[L3]["pass_rate"], numbers[L3]["runs"], numbers[L3]["not_run"]) == (1.0, 1, 6)
    assert (numbers[L2]["pass_rate"], numbers[L2]["runs"], numbers[L2]["not_run"]) == (1.0, 1, 7)
    assert (numbers[L4]["success"], numbers[L4]["failure"]) == (6, 1)
    assert merge_guard.paged(github, UPSTREAM, pulls[0].head_sha, {L4: ["dave"], L3: ["carol"]}) == ["dave"]
    shown = [name for pull in pulls for name in bot.checks(UPSTREAM, pull.head_sha) if L3 in name]
    assert shown == [f"crcr/{L3}/CI/build"]


def dispatch_of(github, repo, pull):
    """Return the dispatch of a pull request that a backend received."""
    return next(
        one for one in github.dispatches
        if one.repo.full_name == repo and one.client_payload["payload"]["number"] == pull.number
    )  # fmt: skip
