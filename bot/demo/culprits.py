"""The step of the scenario in which a backend that broke at night is run on 16 commits until the culprit is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo import participants, trunk_history
from bot.demo.backends import PlannedJob
from bot.demo.participants import MATMUL, RISCV

if TYPE_CHECKING:
    from bot.demo.scenario import Scenario

PAGE = f"/{participants.UPSTREAM}/bisects"
PAGES = ((PAGE, ("is broken by", "passed on its parent")),)


async def find_culprit(scenario: Scenario) -> None:
    """Ask in a comment which commit broke the backend; its CI answers each run that the search sends."""
    environment, history = scenario.environment, scenario.history
    if history is None:
        return
    backend = environment.backends[RISCV]
    for at in range(trunk_history.BACKEND_GOOD, trunk_history.BACKEND_BAD + 1):
        broken = at >= trunk_history.BACKEND_BROKE
        job = PlannedJob(
            name=trunk_history.NIGHTLY_JOB,
            seconds=0.2,
            conclusion="failure" if broken else "success",
            failed_tests=(MATMUL,) if broken else (),
        )
        backend.plan(job, head=history.commits[at])
    await environment.github.comment(scenario.pulls[0], f"/oot bisect {RISCV}", participants.RISCV_ONCALL)
    await scenario.expect(
        "an on-call asks which commit broke a backend at night: it is run on the newest one again",
        lambda: any("bisect" in one.client_payload for one in environment.github.dispatches),
    )
    culprit = history.commits[trunk_history.BACKEND_BROKE]
    sentence = f"is broken by #{trunk_history.number_of(trunk_history.BACKEND_BROKE)} ({culprit[:7]}"
    expectation = "the search names the culprit among 16 commits"
    await environment.wait_for_page(expectation, PAGE, sentence)
    scenario.fulfilled.append(expectation)
