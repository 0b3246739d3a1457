"""State of a pull request: its heads, newest first, each judged, and what the public may see of them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.results import dispatches
from bot.oot.results.visibility import read_private_names
from bot.oot.verdict import verdict, view
from bot.oot.verdict.comparison import (
    Comparison,
    comparable_jobs,
    compare_jobs,
    with_bases,
    with_histories,
)
from bot.oot.verdict.view import CommandAnswer, Pull, anchor_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.ingest.record_store import LabelEventRow
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.results.tables import CommandRow, DispatchRow, IgnoreRow
    from bot.oot.results.visibility import PrivateNames
    from bot.oot.verdict.comparison import ComparedRow
    from bot.oot.verdict.verdict import Facts
    from bot.oot.verdict.view import Backend, Job
    from bot.web.blocks import JobLine

NO_ALLOWLIST = "no valid allowlist has been read yet"
MOST_HEADS = 10  # newest heads whose failures are compared and whose check runs are maintained
MOST_RECENT = 5  # dispatches of a head to one backend that are read
ANSWERS = 3  # to the last commands, shown in the comment
PRIVATE_LOG = "the log is private"
GITHUB_PAGE = re.compile(
    r"https?://[^/?#]+/[^/?#]+/[^/?#]+/actions/runs/[0-9]+(?:/(?:attempts|job)/[0-9]+)*/?"
)


@dataclass(frozen=True, kw_only=True)
class PullHead:
    """One head of a pull request: what is shown of it, and the facts it was judged by."""

    view: Pull
    facts: Mapping[str, Facts]  # of the dispatches that count, by the backend's case folded name
    entries: Mapping[str, Entry]
    expecting: bool = False  # newest head of an open pull request: blocking backends are due on it
    undispatched: tuple[Backend, ...] = ()  # that block, on a head that expects none any more
    recent: tuple[Facts, ...] = ()  # of the last dispatches to each backend
    judged: bool = True  # otherwise only its SHA was read


def labels_ask_for(device: str | None, labels: Collection[str], prefixes: Sequence[str]) -> bool:
    """Return whether a pull request with these labels asks for a device."""
    return any(is_label(label, prefix + (device or "")) for label in labels for prefix in prefixes)


def is_label(name: str, wanted: str) -> bool:
    """Return whether GitHub takes both names for the same label."""
    return name.casefold() == wanted.casefold()


def in_doubt(record: PullRow | None, events: Sequence[LabelEventRow]) -> bool:
    """Return whether to ask GitHub for the labels; `events` are the newest label events, newest first.

    Any of several deliveries within a second can be the last. That matters when two changed labels, or when the
    record, made by another delivery of that second, contradicts the one that did.
    """
    if record is None or not events:
        return False
    second = events[0]["updated_at"]
    if (record["updated_at"] or 0) > (second or 0):
        return False  # a later delivery has listed all labels
    last = [event for event in events if event["updated_at"] == second]
    added = events[0]["action"] == "labeled"
    return len(last) > 1 or added != (events[0]["label_name"] in (record["labels"] or ()))


@dataclass(frozen=True, kw_only=True)
class HeadJudge:
    """Judges the heads of one pull request."""

    settings: Settings
    allowlist: Allowlist | None
    repo: str
    number: int
    labels: frozenset[str]
    ignored: Mapping[tuple[str, str], IgnoreRow]  # by head and the backend's case folded name
    now: int  # epoch milliseconds

    def head(
        self, sha: str, facts: Mapping[str, Facts], *, expecting: bool, base_ref: str | None = None
    ) -> PullHead:
        """Judge one head; `expecting`: it is the newest of an open pull request, so blocking backends are due on it.

        `base_ref` is the base branch of its last dispatch: a backend dispatched only for another one is due again.
        """
        entries = {entry.key: entry for entry in self.allowlist.entries} if self.allowlist else {}
        blocking = {key: entry for key, entry in entries.items() if verdict.is_due(entry)}
        known = {
            key: verdict.as_blocking(known_facts, entries.get(key))
            if (expecting and key in blocking) or known_facts.dispatch["level"] >= Level.L4
            else known_facts
            for key, known_facts in facts.items()
        }
        missing = [entry for key, entry in blocking.items() if key not in known]
        shown = [
            self._dispatched(sha, known_facts, entries.get(key))
            for key, known_facts in known.items()
            if known_facts.dispatch["level"]
            != Level.L1  # an unknown level is shown, and keeps the gate from passing
        ]
        if expecting:
            shown += self._undispatched(sha, missing)
        else:
            missing += [
                blocking[key]
                for key, known_facts in known.items()
                if key in blocking and known_facts.dispatch["base_ref"] != base_ref
            ]
        return PullHead(
            view=self._view(sha, shown),
            facts=known,
            entries=entries,
            expecting=expecting,
            undispatched=() if expecting else self._with_ignores(sha, self._undispatched(sha, missing)),
        )

    def _view(self, sha: str, backends: Sequence[Backend]) -> Pull:
        ordered = sorted(backends, key=lambda backend: (-backend.level, backend.label.casefold()))
        return Pull(
            repo=self.repo,
            number=self.number,
            head_sha=sha,
            backends=self._with_ignores(sha, ordered),
            page_url=self._page,
            help_url=f"{self.settings.url}/oot/levels",
            gate_unknown="" if self.allowlist else NO_ALLOWLIST,
        )

    def _with_ignores(self, sha: str, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Return backends on a head with the ignores that hold there."""
        return tuple(
            _with_ignore(backend, self.ignored.get((sha, backend.repo.casefold()))) for backend in backends
        )

    def _dispatched(self, sha: str, facts: Facts, entry: Entry | None) -> Backend:
        dispatch = facts.dispatch
        requested = dispatch["level"] >= Level.L4 or (
            verdict.level_of(dispatch, entry) == Level.L3
            and labels_ask_for(dispatch["device"], self.labels, self.settings.label_prefixes)
        )
        page_url = self._page_of(sha, dispatch["backend"])
        return view.dispatched(facts, entry, now=self.now, page_url=page_url, requested=requested)

    def _undispatched(self, sha: str, entries: Sequence[Entry]) -> list[Backend]:
        return [view.undispatched(entry, page_url=self._page_of(sha, entry.repo)) for entry in entries]

    @property
    def _page(self) -> str:
        return f"{self.settings.url}/{self.repo}/pull/{self.number}"

    def _page_of(self, sha: str, backend: str) -> str:
        return f"{self._page}?sha={sha}#{anchor_of(backend)}"


@dataclass(frozen=True, kw_only=True)
class PullState:
    """A pull request and all its known heads, newest first."""

    repo: str
    number: int
    record: PullRow | None
    labels: frozenset[str]
    heads: tuple[PullHead, ...]
    compared: tuple[ComparedRow, ...] = ()  # results of comparing failures that are not stored yet

    @property
    def base_ref(self) -> str | None:
        """The branch it would be merged into now."""
        return self.record["base_ref"] if self.record else None

    @property
    def current(self) -> PullHead | None:
        """The newest head."""
        return self.heads[0] if self.heads else None

    def head(self, sha: str) -> PullHead | None:
        """Return the head of that SHA."""
        return next((head for head in self.heads if head.view.head_sha == sha), None)


@dataclass(frozen=True, kw_only=True)
class _Dispatches:
    """The dispatches of one head."""

    counting: Mapping[str, DispatchRow]  # whose verdicts count, by backend
    pushed: Sequence[DispatchRow]  # of pushes that are about the pull request, which count beside them
    recent: Sequence[DispatchRow]  # these, and the last few to each backend
    base_ref: str | None = None  # the base branch of the last of all

    @classmethod
    def of(cls, record: PullRow | None, dispatched: Sequence[DispatchRow]) -> _Dispatches:
        """Sort all dispatches of a head, given oldest first, by how they count."""
        valid = [row for row in dispatched if _is_valid(record, row)]
        counting = verdict.newest_by_backend(verdict.of_own_events(valid))
        pushed = verdict.answered_pushes(valid)
        by_backend: defaultdict[str, list[DispatchRow]] = defaultdict(list)
        for row in dispatched:
            by_backend[row["backend_key"]].append(row)
        recent = [row for of_backend in by_backend.values() for row in of_backend[-MOST_RECENT:]]
        return cls(
            counting=counting,
            pushed=pushed,
            recent=list({row["id"]: row for row in (*counting.values(), *pushed, *recent)}.values()),
            base_ref=dispatched[-1]["base_ref"] if dispatched else None,
        )

    @property
    def deciding(self) -> list[DispatchRow]:
        """The dispatches whose reports count."""
        return [*self.counting.values(), *self.pushed]


NO_DISPATCHES = _Dispatches(counting={}, pushed=(), recent=())


async def read_pull(
    tx: Transaction,
    settings: Settings,
    repo: str,
    number: int,
    *,
    labels: frozenset[str] | None = None,
    newest: int | None = None,
    also: Collection[str] = (),
    compared: int = 0,
    shown: str | None = None,
) -> PullState:
    """Read and judge a pull request; an unknown one has no heads. `labels`: as GitHub shows them, if it was asked.

    The `newest` heads (None: all) and those `also` given by SHA are judged; of the others, perhaps hundreds, only the
    SHA is known. Failed tests are read for the newest `compared` heads, whose failures are compared, and for
    the one whose SHA begins with `shown` ("" is the newest), whose failures `explain` compares.
    """
    record = await record_store.read_pull(tx, repo, number)
    shas = _newest_first(record, await dispatches.read_heads_of_pull(tx, repo, number))
    in_full = [sha for sha in shas if shown is not None and sha.startswith(shown)][:1]
    judge = await _judge(tx, settings, repo, number, record=record, labels=labels)
    judged = None if newest is None else {*shas[:newest], *also, *in_full}
    heads = await _judge_heads(
        tx, judge, record, shas, judged=judged, with_tests={*shas[:compared], *in_full}
    )
    heads[:compared] = await with_bases(tx, heads[:compared], base_ref=record["base_ref"] if record else None)
    comparison = await _compare(tx, record, heads[:compared])
    heads = [with_histories(head, comparison.by_key) for head in heads]
    if heads:
        heads[0] = await _current(tx, heads)
    return PullState(
        repo=repo,
        number=number,
        record=record,
        labels=judge.labels,
        heads=tuple(heads),
        compared=tuple(comparison.fresh),
    )


async def hide_private_names(tx: Transaction, settings: Settings, state: PullState) -> PullState:
    """Return the state as check runs and comment may show it."""
    backends = {backend.repo for head in state.heads for backend in head.view.backends}
    names = await read_private_names(tx, settings, backends)
    if not names.backends:
        return state
    heads = tuple(
        replace(
            head,
            view=hide_in_pull(head.view, names),
            undispatched=tuple(hide_in_backend(backend, names) for backend in head.undispatched),
        )
        for head in state.heads
    )
    return replace(state, heads=heads)


def hide_in_pull(pull: Pull, names: PrivateNames) -> Pull:
    """Return a head without private names."""
    return replace(
        pull,
        backends=tuple(hide_in_backend(backend, names) for backend in pull.backends),
        previous=hide_in_pull(pull.previous, names) if pull.previous else None,
    )


def hide_in_backend(backend: Backend, names: PrivateNames) -> Backend:
    """Return a backend without private names."""
    if not names.hides(backend.repo):
        return backend
    jobs = tuple(_hide_in_job(job, backend.repo, names) for job in backend.jobs)
    lines = tuple(_hide_in_line(line, names.job(backend.repo, "", line.job)) for line in backend.lines)
    return replace(backend, jobs=jobs, lines=lines, run_url=_page(backend.run_url))


def _with_ignore(backend: Backend, ignore: IgnoreRow | None) -> Backend:
    if ignore is None:
        return backend
    return replace(backend, ignored_by=ignore["login"], ignored_reason=ignore["reason"])


async def _judge(
    tx: Transaction,
    settings: Settings,
    repo: str,
    number: int,
    *,
    record: PullRow | None,
    labels: frozenset[str] | None,
) -> HeadJudge:
    if labels is None:
        labels = frozenset((record["labels"] or ()) if record else ())
    ignored = await dispatches.read_ignored_backends(tx, repo, number)
    return HeadJudge(
        settings=settings,
        allowlist=await allowlists.read_in_force(tx),
        repo=repo,
        number=number,
        labels=labels,
        ignored={key: row for key, row in ignored.items() if _is_valid(record, row)},
        now=tx.now,
    )


async def _judge_heads(
    tx: Transaction,
    judge: HeadJudge,
    record: PullRow | None,
    shas: Sequence[str],
    *,
    judged: Collection[str] | None,
    with_tests: Collection[str],
) -> list[PullHead]:
    """Return all heads: those in `judged` (None: all) are judged, those in `with_tests` have their failed tests."""
    rows_of: defaultdict[str | None, list[DispatchRow]] = defaultdict(list)
    for row in await dispatches.read_dispatches_of_pull(tx, judge.repo, judge.number, heads=judged):
        rows_of[row["head_sha"]].append(row)
    chosen = {sha: _Dispatches.of(record, rows_of[sha]) for sha in (shas if judged is None else judged)}
    known = await verdict.read_facts(
        tx,
        [row for dispatches_of_head in chosen.values() for row in dispatches_of_head.recent],
        tests_of=[row["id"] for sha in with_tests for row in chosen[sha].deciding],
    )
    is_open = record is not None and record["state"] == "open"
    heads: list[PullHead] = []
    for sha in shas:
        of_head = chosen.get(sha, NO_DISPATCHES)
        counting = verdict.merge_facts(known, of_head.counting, of_head.pushed)
        expecting = sha in chosen and is_open and sha == shas[0]
        head = judge.head(sha, counting, expecting=expecting, base_ref=of_head.base_ref)
        recent = tuple(known[row["id"]] for row in of_head.recent)
        heads.append(replace(head, recent=recent, judged=sha in chosen))
    return heads


async def _compare(tx: Transaction, record: PullRow | None, heads: Sequence[PullHead]) -> Comparison:
    """Compare the failures of some heads with the same jobs elsewhere."""
    if record is None or not heads:
        return Comparison(by_key={}, fresh=())
    jobs_of_heads = (comparable_jobs(head, record["base_ref"]) for head in heads)
    return await compare_jobs(tx, [job for several in jobs_of_heads for job in several])


async def _current(tx: Transaction, heads: Sequence[PullHead]) -> PullHead:
    """Return the newest head with the previous verdict and the answers to commands, which only it shows."""
    view = heads[0].view
    previous = None
    if not view.reported:
        previous = next((head.view for head in heads[1:] if head.view.reported), None)
    last = await dispatches.read_latest_commands(tx, view.repo, view.number, limit=ANSWERS)
    answers = tuple(_answer(row) for row in last)
    return replace(heads[0], view=replace(view, previous=previous, answers=answers))


def _answer(row: CommandRow) -> CommandAnswer:
    refused = row["state"] == "refused"
    return CommandAnswer(
        login=row["login"],
        command=row["text"],
        text=row["answer"],
        refused=refused,
        awaited=refused or row["verb"] in {"help", "status", "bisect"},
        at=row["created_at"],
    )


def _newest_first(record: PullRow | None, known: Sequence[str]) -> list[str]:
    """Return the heads newest first; the record tells which is current, whatever the order of deliveries."""
    shas: dict[str, None] = {}
    if record is not None and record["head_sha"]:
        shas[record["head_sha"]] = None
    shas |= dict.fromkeys(reversed(known))
    return list(shas)


def _is_valid(record: PullRow | None, row: DispatchRow | IgnoreRow) -> bool:
    """Whether a dispatch or an ignore still counts: on the current head, only for the current base branch."""
    return record is None or row["head_sha"] != record["head_sha"] or row["base_ref"] == record["base_ref"]


def _hide_in_job(job: Job, backend: str, names: PrivateNames) -> Job:
    name = names.job(backend, job.workflow, job.name)
    return replace(
        job,
        workflow=names.workflow(backend, job.workflow),
        name=name,
        url=_page(job.url),
        failed=job.failed if job.failed is not None else len(job.failed_tests) or None,
        failed_tests=(),
        artifact_url=None,
        environment={},
        triage="",
        evidence_url=_page(job.evidence_url),
        lines=tuple(_hide_in_line(line, name) for line in job.lines),
    )


def _hide_in_line(line: JobLine, name: str) -> JobLine:
    return replace(line, job=name, words=PRIVATE_LOG, code="", place="", url=None)


def _page(url: str | None) -> str | None:
    """Return an address on GitHub that names nothing but ids; None for any other."""
    return url if url and GITHUB_PAGE.fullmatch(url) else None
