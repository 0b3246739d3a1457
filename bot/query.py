"""What does a pull request look like now? Our rows, read and judged once, for check runs, comment and pages alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.view import Pull
from bot.store import allowlists, dispatches, jobs, pulls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.domain.allowlist import Allowlist, Entry
    from bot.domain.verdict import Facts
    from bot.domain.view import Backend
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head of a pull request: what people see, and what it was judged from."""

    view: Pull
    facts: Mapping[str, Facts]  # by the backend's case folded name
    entries: Mapping[str, Entry]


@dataclass(frozen=True, kw_only=True)
class PullState:
    """A pull request and all its heads we know, newest first."""

    repo: str
    number: int
    record: Row | None
    labels: frozenset[str]
    heads: tuple[Head, ...]

    @property
    def current(self) -> Head | None:
        """The head people look at now."""
        return self.heads[0] if self.heads else None

    def head(self, sha: str) -> Head | None:
        """Return the head of that SHA."""
        return next((head for head in self.heads if head.view.head_sha == sha), None)


async def pull_state(tx: Transaction, settings: Settings, repo: str, number: int) -> PullState:
    """Read and judge a pull request; an unknown one has no heads."""
    allowlist = await allowlists.in_force(tx)
    record = await pulls.get(tx, repo, number)
    rows = await dispatches.of_pull(tx, repo, number)
    facts = await _facts(tx, rows)
    shas = _heads(record, rows)
    heads: list[Head] = []
    for sha in shas:
        chosen = {key: facts[row["id"]] for key, row in verdict.newest(_on(rows, sha)).items()}
        expected = sha == shas[0] and record is not None and record["state"] == "open"
        heads.append(
            _head(
                settings,
                allowlist=allowlist,
                repo=repo,
                number=number,
                sha=sha,
                facts=chosen,
                expecting=record if expected else None,
                now=tx.now,
            )
        )
    if len(heads) > 1 and not heads[0].view.reported:
        said = next((head.view for head in heads[1:] if head.view.reported), None)
        heads[0] = replace(heads[0], view=replace(heads[0].view, previous=said))
    labels = frozenset((record["labels"] or ()) if record else ())
    return PullState(repo=repo, number=number, record=record, labels=labels, heads=tuple(heads))


async def _facts(tx: Transaction, rows: Sequence[Row]) -> dict[str, Facts]:
    ids = [row["id"] for row in rows]
    reported = await jobs.of_dispatches(tx, ids)
    reruns = await dispatches.reruns_of(tx, ids)
    backends = {row["id"]: row["backend_key"] for row in rows}
    runs = {(backends[row["dispatch_id"]], row["run_id"]) for row in reported}
    words = await jobs.words_of_github(tx, runs)
    return {
        row["id"]: verdict.Facts(
            dispatch=row,
            jobs=[job for job in reported if job["dispatch_id"] == row["id"]],
            reruns=[rerun for rerun in reruns if rerun["dispatch_id"] == row["id"]],
            words={
                (word["run_id"], word["run_attempt"]): word
                for word in words
                if word["backend_key"] == row["backend_key"]
            },
        )
        for row in rows
    }


def _head(
    settings: Settings,
    *,
    allowlist: Allowlist | None,
    repo: str,
    number: int,
    sha: str,
    facts: Mapping[str, Facts],
    expecting: Row | None,
    now: int,
) -> Head:
    """Judge one head; `expecting` is the open pull request's record when blocking backends are due on it."""
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    page = f"{settings.url}/{repo}/pull/{number}"
    seen: list[Backend] = []
    for key, known in facts.items():
        if known.dispatch["level"] > 1:
            anchor = f"{page}?sha={sha}#{anchor_of(known.dispatch['backend'])}"
            seen.append(verdict.backend(known, entries.get(key), now=now, page_url=anchor))
    for key, entry in entries.items():
        if expecting is not None and entry.level == 4 and key not in facts and entry.wants("pull_request"):
            anchor = f"{page}?sha={sha}#{anchor_of(entry.repo)}"
            seen.append(verdict.undispatched(entry, page_url=anchor))
    view = Pull(
        repo=repo,
        number=number,
        head_sha=sha,
        backends=tuple(sorted(seen, key=lambda backend: (-backend.level, backend.label.casefold()))),
        page_url=page,
        help_url=f"{settings.url}/oot/levels",
    )
    return Head(view=view, facts=facts, entries=entries)


def anchor_of(backend: str) -> str:
    """Return the page anchor of a backend's section."""
    return "backend-" + backend.casefold().replace("/", "-")


def _heads(record: Row | None, rows: Sequence[Row]) -> list[str]:
    """Return the heads newest first; the record knows which is current, whatever order deliveries came in."""
    shas: dict[str, None] = {}
    if record is not None and record["head_sha"]:
        shas[record["head_sha"]] = None
    for row in reversed(rows):
        shas.setdefault(row["head_sha"], None)
    return list(shas)


def _on(rows: Sequence[Row], sha: str) -> list[Row]:
    return [row for row in rows if row["head_sha"] == sha]
