"""The step of the scenario in which a pull request changes documentation only, which no backend with `paths` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo import participants
from bot.demo.participants import GATE, WATCHER

if TYPE_CHECKING:
    from bot.demo.github import Pull
    from bot.demo.scenario import Scenario

REASON = "no file of interest changed"
NOT_NEEDED = "1 blocking backend not needed"


async def change_documentation(scenario: Scenario) -> None:
    """Open a pull request of documentation; its gate passes although nothing runs, as the allowlist says so."""
    environment = scenario.environment
    pull = await environment.github.open_pull(
        participants.UPSTREAM,
        title="Explain how indices are read",
        author=participants.AUTHOR,
        files=["docs/indices.md", "README.md"],
        body="No backend needs to run this.",
    )
    await scenario.expect(
        "the gate of a documentation-only pull request passes, as the allowlist says in words",
        lambda: (
            (run := environment.checks(pull).get(GATE))
            and (run.outcome, run.output.title) == ("success", NOT_NEEDED)
        ),
    )
    await scenario.expect(
        "only the backend without `paths` was sent it", lambda: dispatched(scenario, pull) == {WATCHER}
    )
    page = f"/{participants.UPSTREAM}/pull/{pull.number}"
    expectation = "its page says who was not asked and why"
    await environment.wait_for_page(expectation, page, REASON)
    scenario.fulfilled.append(expectation)


def dispatched(scenario: Scenario, pull: Pull) -> set[str]:
    """Return the backends that were sent a pull request."""
    return {
        one.repo.full_name
        for one in scenario.environment.github.dispatches
        if one.event_type == "pull_request" and one.client_payload["payload"]["number"] == pull.number
    }
