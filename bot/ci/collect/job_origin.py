"""What a run was started for: the pull request or commit of upstream, and whether by a backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.json_fields import FULL_NAME
from bot.ingest import record_reads
from bot.oot.results.store import jobs
from bot.oot.verdict.view import anchor_of

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The pull request or commit that a run tested."""

    upstream: str
    pull: int | None
    title: str  # of the pull request; comes from outside
    sha: str  # of upstream's commit
    backend: str | None  # that reported the run; None: it is upstream's own
    level: int | None = None  # of the backend then

    @property
    def page(self) -> str:
        """Where the results for it are."""
        where = f"/{self.upstream}/pull/{self.pull}?sha={self.sha}" if self.pull else ""
        where = where or f"/{self.upstream}/commit/{self.sha}"
        return f"{where}#{anchor_of(self.backend)}" if self.backend else where


async def find_origin(
    tx: Transaction, repo: str, run_id: int | None, head_sha: str | None, hidden: Hidden
) -> Origin | None:
    """Return what a run was started for, None where that is not known or may not be shown."""
    reported = await jobs.read_for_run(tx, repo, str(run_id))
    if reported:
        last = reported[-1]
        upstream, number, sha = last["upstream_repo"], last["pr_number"], last["head_sha"]
        backend, level = last["downstream_repo"], last["downstream_repo_level"]
    else:
        upstream, sha, backend, level = repo, head_sha, None, None
        numbers = await record_reads.deciders(tx, upstream, [sha] if sha else [])
        number = next(iter(numbers.get(sha or "", ())), None)
    if not upstream or not FULL_NAME.fullmatch(upstream) or hidden.has(upstream):
        return None
    if not sha or not (number or backend):
        return None
    record = await record_reads.get(tx, upstream, number) if number else None
    title = (record["title"] if record else None) or ""
    return Origin(upstream=upstream, pull=number, title=title, sha=sha, backend=backend, level=level)
