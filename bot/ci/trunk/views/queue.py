"""GET /{owner}/{repo}/queue and its JSON: what waits for which runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.trunk import reading, runner_queue
from bot.ci.trunk.runner_queue import RunnerQueue
from bot.ci.trunk.runner_reads import read_runner_queues
from bot.ci.trunk.store.changed_days import RUNNERS
from bot.core import text
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import blocks, charts
from bot.web import operations as op
from bot.web.answers import Answer
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.subjects import QueueSubject
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.web.asked import Asked
    from bot.web.blocks import Block

REFRESH = 60  # seconds


class Queue(Answer, frozen=True, kw_only=True):
    """Runners by label, those with the longest wait first"""

    queue_bounds: list[int]  # of queue_counts_week, in seconds
    runners: list[RunnerQueue]


@dataclass(frozen=True, kw_only=True)
class Queues:
    """What waits in a repository."""

    repo: str
    runners: list[RunnerQueue]
    counted_until: int | None
    added: list[Block]  # by other features


async def read_queues(asked: Asked) -> Queues:
    """Read what waits, and what waited in the last days."""
    tx = asked.tx
    branch = await reading.find_branch(tx, asked.hidden, asked[REPO], "")
    first = tx.now // DAY - runner_queue.WEEK
    identifier = branch.repository["repository_id"]
    subject = QueueSubject(
        repo=branch.repository["full_name"], repository_id=identifier, settings=asked.settings
    )
    return Queues(
        repo=subject.repo,
        runners=await read_runner_queues(tx, asked.settings, branch),
        counted_until=await sums.counted_until(tx, RUNNERS, [identifier], first=first),
        added=await blocks.gather(asked.context.features, "queue", tx, subject) if asked.for_page else [],
    )


def show(found: Queues) -> dict[str, Any]:
    """Return what the page shows."""
    runners = [
        (one, charts.bars(one.queue_counts_week), _spread(one.queue_counts_week)) for one in found.runners
    ]
    return {
        "repo": found.repo,
        "runners": runners,
        "counted_until": found.counted_until,
        "added": found.added,
    }


def answer(found: Queues) -> Queue:
    """Return what waits for which runner."""
    return Queue(queue_bounds=list(runner_queue.BOUNDS), runners=found.runners)


def _spread(counts: list[int]) -> str:
    """Return what a histogram of queue times shows, in words."""
    upper = [f"up to {text.duration(bound)}" for bound in runner_queue.BOUNDS]
    words = [*upper, f"over {text.duration(runner_queue.BOUNDS[-1])}"]
    return ", ".join(f"{count:,} {word}" for count, word in zip(counts, words, strict=True) if count)


VIEW = View(
    read=read_queues,
    parameters=(REPO,),
    page=Page(path=f"{REPOSITORY}/queue", template="trunk_queue.html", values=show, refresh=REFRESH),
    json=Json(
        path="/api/ci/queue/{owner}/{repo}",
        answer=answer,
        content=Queue,
        name="runnerQueue",
        summary="What waits for which runner",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo},
    ),
)
