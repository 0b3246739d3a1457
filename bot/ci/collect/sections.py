"""What collecting adds to the pages of pull requests, commits, runs and jobs: the artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import artifact_text
from bot.ci.collect.store import artifacts
from bot.ci.collect.store.artifacts import Choice
from bot.ingest import watched
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.ci.collect.store.artifacts import ListedArtifact
    from bot.db.transaction import Transaction
    from bot.web.subjects import CommitSubject, JobSubject, PullSubject, RunSubject

SHOWN = 50  # artifacts of one section
MOST = 1_000  # counted for it


async def pull_artifacts(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return the artifacts of the shown head."""
    if subject.head_sha is None:
        return []
    return await _of_repo(tx, subject.repo, subject.github, Choice(sha=subject.head_sha))


async def commit_artifacts(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return the artifacts of a commit."""
    return await _of_repo(tx, subject.repo, subject.github, Choice(sha=subject.sha))


async def run_artifacts(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return the artifacts of a run."""
    choice = Choice(same={"run_id": subject.run_id})
    return await _blocks(tx, {subject.repository_id}, subject.repo, subject.github, choice)


async def job_artifacts(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return the artifacts of a job, with what became of reading them."""
    choice = Choice(same={"run_id": subject.run_id, "job_id": subject.job_id})
    return await _blocks(tx, {subject.repository_id}, subject.repo, subject.github, choice)


async def _of_repo(tx: Transaction, repo: str, github: str, choice: Choice) -> list[Block]:
    return await _blocks(tx, await watched.ids(tx, repo), repo, github, choice)


async def _blocks(tx: Transaction, owners: set[int], repo: str, github: str, choice: Choice) -> list[Block]:
    found = await artifacts.list_artifacts(tx, owners, choice, limit=MOST)
    if not found:
        return []
    shown = sorted(found, key=lambda one: -one.artifact["size_in_bytes"])[:SHOWN]
    bases = await artifacts.base_sizes(tx, [one.artifact for one in shown])
    lines = [_line(one, repo, github, bases.get(one.artifact["id"], 0)) for one in shown]
    if len(found) > len(shown):
        count = f"{MOST:,} or more" if len(found) == MOST else f"{len(found):,}"
        lines.append(BlockLine(text=f"the largest {len(shown)} of {count}"))
    size = artifact_text.size_in_words(sum(one.artifact["size_in_bytes"] for one in found))
    return [Block(heading=f"Artifacts ({size})", lines=tuple(lines), last=True)]


def _line(one: ListedArtifact, repo: str, github: str, base: int) -> BlockLine:
    artifact = one.artifact
    changed = artifact_text.describe_change(base, artifact["size_in_bytes"])
    text = artifact_text.describe_artifact(artifact, changed=changed)
    unread = one.state in {"refused", "broken", "too_large", "forbidden"}
    return BlockLine(
        text=f"{text} · {one.reason}" if unread else text,
        url=None if artifact["expired"] else artifact_text.page_url(github, repo, artifact),
        tone="warn" if unread else None,
    )
