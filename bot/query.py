"""What does a pull request look like now? Our rows, read and judged once, for check runs, comment and pages alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot import comparing, facts_of
from bot.comparing import Wanted
from bot.domain import verdict
from bot.domain.allowlist_entry import Level
from bot.domain.labels import asks_for
from bot.domain.view import Answer, Pull
from bot.store import allowlists, commands, dispatches, pulls
from bot.store.baselines import Failed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.domain.allowlist import Allowlist, Entry
    from bot.domain.history import Compared
    from bot.domain.verdict import Facts
    from bot.domain.view import Backend, Job
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]
MOST_HEADS = 10  # newest heads whose failures are compared and whose check runs are kept true
MOST_COMPARED = 30  # failing jobs of a backend that are compared with others
ANSWERS = 3  # of the last commands that the comment shows
MOST_JUDGED = 300  # dispatches that a page judges at once
NO_ALLOWLIST = "no valid allowlist has been read yet"


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head of a pull request: what people see, and what it was judged from."""

    view: Pull
    facts: Mapping[str, Facts]  # by the backend's case folded name
    entries: Mapping[str, Entry]
    expecting: bool = False  # an open pull request's newest head: blocking backends are due on it
    told: tuple[Facts, ...] = ()  # every dispatch of this commit


@dataclass(frozen=True, kw_only=True)
class PullState:
    """A pull request and all its heads we know, newest first."""

    repo: str
    number: int
    record: Row | None
    labels: frozenset[str]
    heads: tuple[Head, ...]
    compared: tuple[Row, ...] = ()  # what comparing failures has found out and nobody keeps yet

    @property
    def current(self) -> Head | None:
        """The head people look at now."""
        return self.heads[0] if self.heads else None

    def head(self, sha: str) -> Head | None:
        """Return the head of that SHA."""
        return next((head for head in self.heads if head.view.head_sha == sha), None)


async def pull_state(
    tx: Transaction,
    settings: Settings,
    repo: str,
    number: int,
    *,
    labels: frozenset[str] | None = None,
    compared: int = MOST_HEADS,
    shown: str | None = None,
    sparing: bool = False,
) -> PullState:
    """Read and judge a pull request; an unknown one has no heads. `labels`: GitHub's word, where ours is in doubt.

    Failed tests are read of the newest `compared` heads, whose failures are compared with others, and of the one that
    begins with `shown` ("" is the newest), for which see `explained`. With `sparing`, of a pull request with very many
    dispatches only the head `shown` is judged, the others are but named.
    """
    allowlist = await allowlists.in_force(tx)
    record = await pulls.get(tx, repo, number)
    if labels is None:
        labels = frozenset((record["labels"] or ()) if record else ())
    counts = await dispatches.heads_of_pull(tx, repo, number)
    shas = _heads(record, counts)
    looked_at = [sha for sha in shas if shown is not None and sha.startswith(shown)][:1]
    judged = None
    if sparing and sum(counts.values()) > MOST_JUDGED:
        judged = looked_at[0] if looked_at else ""
    rows = await dispatches.of_pull(tx, repo, number, head_sha=judged)
    facts = await facts_of.dispatches(tx, rows, tests_on={*shas[:compared], *looked_at})
    ignored = await commands.ignored(tx, repo, number)
    heads: list[Head] = []
    for sha in shas:
        chosen = {key: facts[row["id"]] for key, row in verdict.newest(_on(rows, sha)).items()}
        expected = sha == shas[0] and record is not None and record["state"] == "open"
        head = _head(
            settings,
            allowlist=allowlist,
            repo=repo,
            number=number,
            sha=sha,
            facts=chosen,
            expecting=expected,
            labels=labels,
            ignored=ignored,
            now=tx.now,
        )
        head = replace(head, told=tuple(facts[row["id"]] for row in _on(rows, sha)))
        heads.append(head)
    base_ref = record["base_ref"] if record else None
    merge_bases = await pulls.merge_bases(tx, repo, shas[:compared])
    wanted = [
        one
        for head in heads[:compared]
        for one in _comparable(head, base_ref, merge_bases.get(head.view.head_sha))
    ]
    comparison = await comparing.compare(tx, wanted)
    heads = [_explained(head, comparison.found) for head in heads]
    if heads:
        heads[0] = await _current(tx, heads)
    return PullState(
        repo=repo,
        number=number,
        record=record,
        labels=labels,
        heads=tuple(heads),
        compared=tuple(comparison.fresh),
    )


async def _current(tx: Transaction, heads: Sequence[Head]) -> Head:
    """Return the head people look at with what only the newest one says."""
    view = heads[0].view
    said = None
    if not view.reported:
        said = next((head.view for head in heads[1:] if head.view.reported), None)
    given = await commands.latest(tx, view.repo, view.number, limit=ANSWERS)
    answers = tuple(_answer(row) for row in given)
    return replace(heads[0], view=replace(view, previous=said, answers=answers))


def _answer(row: Row) -> Answer:
    refused = row["state"] == "refused"
    return Answer(
        login=row["login"],
        command=row["text"],
        text=row["answer"],
        refused=refused,
        awaited=refused or row["verb"] in {"help", "status"},
        at=row["created_at"],
    )


def _head(
    settings: Settings,
    *,
    allowlist: Allowlist | None,
    repo: str,
    number: int,
    sha: str,
    facts: Mapping[str, Facts],
    expecting: bool,
    labels: frozenset[str],
    ignored: Mapping[tuple[str, str], Row],
    now: int,
) -> Head:
    """Judge one head; `expecting`: it is an open pull request's, so blocking backends are due on it."""
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    page = f"{settings.url}/{repo}/pull/{number}"
    due = {key: entry for key, entry in entries.items() if expecting and verdict.is_due(entry)}
    known = {
        key: verdict.blocking(told, entries.get(key))
        if key in due or told.dispatch["level"] >= Level.L4
        else told
        for key, told in facts.items()
    }
    seen: list[Backend] = []
    for key, told in known.items():
        if told.dispatch["level"] > Level.L1:
            dispatch, entry = told.dispatch, entries.get(key)
            anchor = f"{page}?sha={sha}#{anchor_of(dispatch['backend'])}"
            asked = dispatch["level"] >= Level.L4 or (
                verdict.level_of(dispatch, entry) == Level.L3
                and asks_for(dispatch["device"], labels, settings.label_prefixes)
            )
            seen.append(verdict.backend(told, entry, now=now, page_url=anchor, asked=asked))
    for key, entry in due.items():
        if key not in known:
            anchor = f"{page}?sha={sha}#{anchor_of(entry.repo)}"
            seen.append(verdict.undispatched(entry, page_url=anchor))
    view = Pull(
        repo=repo,
        number=number,
        head_sha=sha,
        backends=tuple(
            _ignored(backend, ignored.get((sha, backend.repo.casefold())))
            for backend in sorted(seen, key=lambda backend: (-backend.level, backend.label.casefold()))
        ),
        page_url=page,
        help_url=f"{settings.url}/oot/levels",
        gate_unknown="" if allowlist else NO_ALLOWLIST,
    )
    return Head(view=view, facts=known, entries=entries, expecting=expecting)


def _ignored(backend: Backend, said: Row | None) -> Backend:
    if said is None:
        return backend
    return replace(backend, ignored_by=said["login"], ignored_reason=said["reason"])


async def explained(
    tx: Transaction, head: Head, *, base_ref: str | None, only: Collection[str] | None = None
) -> Head:
    """Return a head whose failing jobs say what they are; `only` those of some backends, case folded."""
    sha = head.view.head_sha
    merge_bases = await pulls.merge_bases(tx, head.view.repo, [sha])
    found = await comparing.compare(tx, _comparable(head, base_ref, merge_bases.get(sha), only=only))
    return _explained(head, found.found)


def _comparable(
    head: Head, base_ref: str | None, merge_base: str | None, *, only: Collection[str] | None = None
) -> list[Wanted]:
    """Return the failed jobs of a head that are to be compared, of some backends or of all."""
    wanted: list[Wanted] = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        failing = {_attempt(job) for job in backend.failing[:MOST_COMPARED]}
        if failing and (only is None or key in only):
            facts = head.facts[key]
            bases = frozenset(filter(None, (facts.dispatch["base_sha"], merge_base)))
            mine = [row for told in head.told if told.dispatch["backend_key"] == key for row in told.jobs]
            wanted += [
                Wanted(failed=Failed(job=row, base_ref=base_ref, base_shas=bases), same_head=mine)
                for row in facts.jobs
                if _attempt_of(row) in failing and row["completed_at"] is not None
            ]
    return wanted


def _explained(head: Head, found: Mapping[str, Compared]) -> Head:
    """Return a head whose failed jobs say what they are."""
    if not found:
        return head
    keys = {
        (key, _attempt_of(row)): row["job_key"] for key, facts in head.facts.items() for row in facts.jobs
    }
    backends = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        told = [
            (job, found.get(keys.get((key, _attempt(job)), "")) if job.red else None) for job in backend.jobs
        ]
        if not any(one for _, one in told):
            backends.append(backend)
            continue
        compared = tuple(
            replace(job, history=one.history, evidence_url=one.url, evidence_elsewhere=one.elsewhere)
            if one
            else job
            for job, one in told
        )
        backends.append(replace(backend, jobs=compared))
    return replace(head, view=replace(head.view, backends=tuple(backends)))


def _attempt(job: Job) -> tuple[str, int, str, str]:
    return job.run_id, job.run_attempt, job.workflow, job.name


def _attempt_of(row: Row) -> tuple[str, int, str, str]:
    return row["run_id"], row["run_attempt"], row["workflow_name"], row["job_name"]


def anchor_of(backend: str) -> str:
    """Return the page anchor of a backend's section."""
    return "backend-" + backend.casefold().replace("/", "-")


def _heads(record: Row | None, known: Iterable[str]) -> list[str]:
    """Return the heads newest first; the record knows which is current, whatever order deliveries came in."""
    shas: dict[str, None] = {}
    if record is not None and record["head_sha"]:
        shas[record["head_sha"]] = None
    shas |= dict.fromkeys(reversed(list(known)))
    return list(shas)


def _on(rows: Sequence[Row], sha: str) -> list[Row]:
    return [row for row in rows if row["head_sha"] == sha]
