"""What searches add to other pages: the grid, a failure, the culprit's pull request and commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.jobs import branch_history
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits import rows
from bot.oot.culprits.signals import BACKENDS, column_name
from bot.oot.culprits.start import terms_of
from bot.oot.results.visibility import read_private_names
from bot.pages.culprits.searches import labels_of
from bot.web.blocks import Block, BlockForm, BlockLine, GridNotes

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.culprits.tables import BisectRow
    from bot.web.blocks import (
        BackendRunsSubject,
        CommitSubject,
        FailureSubject,
        GridSubject,
        PullSubject,
        Tone,
    )

SEARCHES_MOST = 200  # newest of a branch
SHOWN = 10
HEADING = "Culprit"
SEARCH = "Find the commit"
TONES: dict[str, Tone] = {"found": "bad", "running": "wait", "waiting": "idle", "not_found": "good"}
WORDS = {
    "running": "being searched", "waiting": "search waits", "found": "found", "not_found": "not found",
    "gave_up": "search given up", "cancelled": "search cancelled",
}  # fmt: skip


async def mark_grid(tx: Transaction, subject: GridSubject) -> GridNotes:
    """Return the newest search of each broken column, a button to begin one, and marks on culprits."""
    listed = await allowlists.read_in_force(tx)
    newest = await rows.searches_of_branch(tx, subject.repository_id, subject.branch, limit=SEARCHES_MOST)
    newest = await _visible(tx, subject.settings, newest)
    labels, in_grid = labels_of(listed), _grid_labels(listed)
    by_column: dict[str, BisectRow] = {}
    for row in newest:
        label = in_grid.get(row["backend"].casefold(), row["backend"])
        by_column.setdefault(column_name(label, row["job"]), row)
    columns, forms = {}, {}
    for name in subject.broken:
        last = by_column.get(name)
        if last and last["state"] != "cancelled":
            columns[name] = (_line(last),)
        if (last is None or last["ended_at"] is not None) and (form := _form(subject, name, listed)):
            forms[name] = form
    culprits = await rows.read_found_on(tx, subject.repository_id, subject.shas)
    commits: dict[str, tuple[BlockLine, ...]] = {}
    for row in await _visible(tx, subject.settings, culprits):
        label = labels.get(row["backend"].casefold(), row["backend"] or "upstream")
        line = BlockLine(text=f"broke {label}", url=rows.page_of_search(row), tone="bad")
        commits[row["culprit_sha"] or ""] = (*commits.get(row["culprit_sha"] or "", ()), line)
    return GridNotes(columns=columns, forms=forms, commits=commits)


async def describe_failure(tx: Transaction, subject: FailureSubject) -> list[Block]:
    """Return buttons that begin a search for this failure, in each job that it began in."""
    listed = await allowlists.read_in_force(tx)
    forms = []
    for place in subject.began:
        backend = "" if place.repo.casefold() == place.upstream.casefold() else place.repo
        entry = listed.find(backend) if listed and backend else None
        if (backend and entry is None) or terms_of(entry).mode == "off":
            continue
        fields = {
            "repo": place.upstream, "branch": place.branch, "backend": backend or "upstream", "what": place.job,
            "signature": subject.signature,
        }  # fmt: skip
        about = f"which broke {place.job} on {place.branch} this way, by running it"
        forms.append(BlockForm(action="/bisects", label=SEARCH, fields=fields, about=about))
    lines = []
    for upstream in sorted({place.upstream for place in subject.began}):
        branch = await branch_history.find_branch_of(tx, upstream, "")
        if branch is not None:
            searches = await rows.read_searches_of(
                tx, branch.repository["repository_id"], limit=SEARCHES_MOST
            )
            mine = [row for row in searches if row["signature"] == subject.signature]
            lines += [_line(row) for row in (await _visible(tx, subject.settings, mine))[:SHOWN]]
    return [Block(heading="Which commit", lines=tuple(lines), forms=tuple(forms))] if lines or forms else []


async def describe_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return what a pull request broke after it was merged."""
    branch = await branch_history.find_branch_of(tx, subject.repo, "")
    if branch is None:
        return []
    searches = await rows.read_found_of_pull(tx, branch.repository["repository_id"], subject.number)
    return _block(await _visible(tx, subject.settings, searches))


async def describe_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return what a commit broke."""
    branch = await branch_history.find_branch_of(tx, subject.repo, "")
    if branch is None:
        return []
    searches = await rows.read_found_on(tx, branch.repository["repository_id"], [subject.sha])
    return _block(await _visible(tx, subject.settings, searches))


async def mark_runs(tx: Transaction, subject: BackendRunsSubject) -> dict[str, BlockLine]:
    """Return a mark on the runs of a backend that a search asked for."""
    return {
        run_id: BlockLine(text="by bisect", url=f"/{subject.repo}/bisects/{search}", tone="idle")
        for run_id, search in await rows.searches_of_runs(tx, subject.sha, subject.run_ids)
    }


async def _visible(tx: Transaction, settings: Settings, searches: list[BisectRow]) -> list[BisectRow]:
    """Return the searches of jobs whose names anyone may see."""
    backends = {row["backend"] for row in searches if row["backend"]}
    private = await read_private_names(tx, settings, backends) if backends else None
    return [row for row in searches if not (private and private.hides(row["backend"]))]


def _line(row: BisectRow) -> BlockLine:
    words = row["why"] if row["state"] in {"found", "not_found"} else f"{WORDS[row['state']]}: {row['why']}"
    return BlockLine(
        text=words.rstrip(": "), url=rows.page_of_search(row), tone=TONES.get(row["state"], "idle")
    )


def _block(searches: list[BisectRow]) -> list[Block]:
    lines = tuple(
        BlockLine(text=row["why"], url=rows.page_of_search(row), tone="bad") for row in searches[:SHOWN]
    )
    return [Block(heading=HEADING, lines=lines)] if lines else []


def _form(subject: GridSubject, name: str, listed: Allowlist | None) -> BlockForm | None:
    """Return the button of a broken column, None where it cannot be searched."""
    backend, job = "upstream", name
    if name.startswith("checks / "):
        return None
    if name.startswith(f"{BACKENDS} / "):
        labels = _grid_labels(listed)
        meant = [key for key, label in labels.items() if name.startswith(column_name(label, ""))]
        entry = listed.find(meant[0]) if listed and len(meant) == 1 else None  # two may share a device
        if entry is None or terms_of(entry).mode == "off":
            return None
        backend, job = entry.repo, name.removeprefix(column_name(labels[entry.key], ""))
    fields = {"repo": subject.repo, "branch": subject.branch, "backend": backend, "what": job}
    return BlockForm(action="/bisects", label=SEARCH, fields=fields)


def _grid_labels(listed: Allowlist | None) -> dict[str, str]:
    """Return how the grid's columns name each backend."""
    return {entry.key: entry.device or entry.repo for entry in (listed.entries if listed else ())}
