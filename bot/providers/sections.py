"""What other CIs add to pages: agents to that of a repository's runners, unmapped projects to the administrator's."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.core.text import plural
from bot.providers import agents, rows
from bot.providers.settings import BUILDKITE, CIRCLECI, providers_of
from bot.queue.sums import DAY
from bot.web.blocks import AdminSection, Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.providers.rows import QueueRow
    from bot.providers.settings import Provider
    from bot.web.blocks import Tone
    from bot.web.subjects import QueueSubject

AGENT_DAYS, UNMAPPED_DAYS = 7, 7
UNMAPPED_MOST = 20  # projects
SILENT = "CircleCI tells only of finished jobs: what waits or runs there is not known."


async def describe_queue(tx: Transaction, subject: QueueSubject) -> list[Block]:
    """Return the agents that a repository's jobs on other CIs run on, and what is not known of these CIs."""
    mine = [one for one in providers_of(subject.settings) if _is_mapped(one, subject.repo)]
    found: list[Block] = []
    organizations = {
        name for one in mine if one.kind == BUILDKITE for name in _organizations(one, subject.repo)
    }
    if organizations:
        queues = await rows.queues(tx, organizations, since=tx.now - AGENT_DAYS * DAY)
        found.append(Block(heading="Agents of Buildkite", lines=_agent_lines(queues)))
    if any(one.kind == CIRCLECI for one in mine):
        found.append(Block(heading="CircleCI", lines=(BlockLine(text=SILENT),)))
    return found


async def describe_unmapped(tx: Transaction, settings: Settings) -> AdminSection:
    """Return the projects whose events lead to nothing, where other CIs deliver at all."""
    found = []
    if providers_of(settings):
        found = await rows.unmapped(tx, since=tx.now - UNMAPPED_DAYS * DAY, limit=UNMAPPED_MOST)
    return AdminSection(template="admin_providers.html", values={"unmapped": found, "days": UNMAPPED_DAYS})


def _is_mapped(one: Provider, repo: str) -> bool:
    return any(name.casefold() == repo.casefold() for name in one.projects.values())


def _organizations(one: Provider, repo: str) -> set[str]:
    mapped = [project for project, name in one.projects.items() if name.casefold() == repo.casefold()]
    return {project.partition("/")[0] for project in mapped}


def _agent_lines(queues: Iterable[QueueRow]) -> tuple[BlockLine, ...]:
    """Return a line for each queue: how many are there, and how many were lost in the last days."""
    by_queue: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in queues:
        by_queue[row["queue"]][row["state"]] = row["agents"]
    lines = []
    for queue, states in sorted(by_queue.items()):
        there, lost = states.get(agents.CONNECTED, 0), states.get(agents.LOST, 0)
        others = [f"{count} {state}" for state, count in states.items() if state != agents.CONNECTED]
        words = f"queue={queue}: {plural(there, 'agent')} connected"
        words += f"; {', '.join(others)} in the last {AGENT_DAYS} days" if others else ""
        tone: Tone = "bad" if not there else "warn" if lost else "good"
        lines.append(BlockLine(text=words, tone=tone))
    return tuple(lines) or (BlockLine(text="no agent is known: tick agent.* in the webhook"),)
