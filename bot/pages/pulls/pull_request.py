"""What the page of a pull request shows: its heads, and its backends, gate and histories on one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.ingest import record_store
from bot.oot.publish import gates
from bot.oot.results import dispatches
from bot.oot.verdict import gate
from bot.oot.verdict.comparison import compare_failures
from bot.oot.verdict.failure_list import settle_histories
from bot.oot.verdict.pull_state import MOST_HEADS, read_pull
from bot.oot.verdict.view import Role, anchor_of, relayed
from bot.pages.backends import job_rows
from bot.pages.backends.interface import NOWHERE
from bot.web.openapi import DeclaredRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.oot.publish.gates import ShownGate
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.gate import GateState
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, BaseCommit, CommandAnswer
    from bot.web.access import Hidden

MOST_JUDGED = 300  # dispatches; with more, only those of the shown head are judged
MOST_FULL = 12  # backends shown with their jobs, where there are more
UNKNOWN_PULL = DeclaredRefusal(404, "unknown_pull_request", "it is unknown, or its repository is private")
UNKNOWN_HEAD = DeclaredRefusal(404, "unknown_commit", "`sha` is no head of it")


@dataclass(frozen=True, kw_only=True)
class BackendSection:
    """One backend on the shown head."""

    backend: Backend
    anchor: str
    relayed: bool = False  # reported by an outside relay: shown, never a check run
    full: bool = True  # with its jobs; of many backends only the most urgent ones

    @property
    def role(self) -> Role:
        """What its verdict is for: whatever an outside relay reports is only watched."""
        return Role.WATCHING if self.relayed else self.backend.role


@dataclass(frozen=True, kw_only=True)
class HeadLine:
    """One head of the pull request."""

    sha: str
    backends: tuple[Backend, ...]
    judged: bool = True  # False: its backends were not judged, there are too many heads
    gate: GateState | None = None  # None: nothing blocks there, or nothing was judged


@dataclass(frozen=True, kw_only=True)
class PullPage:
    """A pull request as its page and its JSON show it."""

    repo: str
    number: int
    page_url: str
    record: PullRow | None
    sha: str | None  # the head shown; None before any is known
    heads: tuple[HeadLine, ...]  # newest first
    sections: tuple[BackendSection, ...]  # of the head shown
    names: tuple[str, ...]  # spellings of the repository in our rows
    gate: ShownGate | None = None  # of the head shown
    base: BaseCommit | None = None  # of the head shown
    answers: tuple[CommandAnswer, ...] = ()  # to the last commands, where the newest head is shown

    @property
    def by_role(self) -> list[tuple[Role, list[Backend]]]:
        """The backends on the shown head, those that block first."""
        by_role = [
            (role, [section.backend for section in self.sections if section.role is role]) for role in Role
        ]
        return [(role, backends) for role, backends in by_role if backends]

    @property
    def decisive(self) -> bool:
        """Whether the head shown is the one that would be merged."""
        return self.current and self.record is not None and self.record["state"] == "open"

    @property
    def current(self) -> bool:
        """Whether the head shown is the newest."""
        return not self.heads or self.sha == self.heads[0].sha

    @property
    def unfinished(self) -> bool:
        """Whether any backend on the shown head has not finished."""
        return any(not section.backend.state.finished for section in self.sections)


async def read_pull_page(
    tx: Transaction,
    settings: Settings,
    hidden: Hidden,
    *,
    repo: str,
    number: int,
    sha: str | None,
    full: int | None = None,
    wanted: str = "",
) -> PullPage:
    """Return a pull request; raises Rejected 404 when it, or the head asked for, is unknown or hidden.

    With `full` only so many backends are shown in full: the one `wanted`, then the red ones first.
    """
    # a hidden repository is searched for under a name that cannot exist: as slow as an unknown one
    where = NOWHERE if hidden.has(repo) else repo
    record = await record_store.read_pull(tx, where, number)
    if record is not None and hidden.has(record["repo"], record["repository_id"]):
        where, record = NOWHERE, None
    names = _names(settings, where, record)
    many = await dispatches.count_of_pull(tx, names[0], number) > MOST_JUDGED
    state = await read_pull(tx, settings, names[0], number, newest=0 if many else None, shown=sha or "")
    relayed = await job_rows.jobs_without_dispatch(tx, names, number)
    seen = await record_store.read_heads(tx, record) if record is not None else {}
    if record is None and not state.heads and not relayed:
        raise UNKNOWN_PULL.because(f"nothing is known of pull request {number} of {repo[:200]}")
    page = _in_part(
        _shown_page(settings, state, names, relayed=relayed, seen=seen, sha=sha), full, wanted.casefold()
    )
    return await _with_gate(tx, settings, state, await _with_reasons(tx, state, page))


def with_failures(page: PullPage, failures: FailureList) -> PullPage:
    """Add what the list of failures says to the gate and the failing jobs."""
    settled = settle_histories([section.backend for section in page.sections], failures)
    sections = tuple(
        replace(section, backend=backend) for section, backend in zip(page.sections, settled, strict=True)
    )
    gate = page.gate
    if gate and gate.number == page.number:  # what another pull request's backends fail is on its own page
        gate = replace(gate, gate=replace(gate.gate, failures=failures))
    return replace(page, sections=sections, gate=gate)


async def _with_gate(tx: Transaction, settings: Settings, state: PullState, page: PullPage) -> PullPage:
    """Add the gate of the shown head, and the state of the gate on every judged head."""
    chosen = [
        *state.heads[:MOST_HEADS],
        *(head for head in state.heads[MOST_HEADS:] if head.view.head_sha == page.sha),
    ]
    written = await gates.read_shown_gates(tx, settings, state, [head for head in chosen if head.judged])
    lines = tuple(replace(line, gate=_gate_state(state, line, written.get(line.sha))) for line in page.heads)
    return replace(page, heads=lines, gate=written.get(page.sha or ""))


def _gate_state(state: PullState, line: HeadLine, written: ShownGate | None) -> GateState | None:
    """Return the state of the gate on a head; without a written gate, that of its blocking backends."""
    if written is not None:
        return written.gate.state
    head = state.head(line.sha)
    if head is None or not head.judged or not any(backend.blocks for backend in head.view.backends):
        return None
    return gate.judge_gate(head.view.backends, unknown=head.view.gate_unknown).state


def _in_part(page: PullPage, full: int | None, wanted: str) -> PullPage:
    """Keep the jobs of `full` backends only: the `wanted` one, then the most urgent ones."""
    if full is None or len(page.sections) <= full:
        return page
    urgent = sorted(
        page.sections,
        key=lambda section: (
            section.backend.repo.casefold() != wanted,
            not section.backend.state.red,
            section.backend.state.finished,
            -section.backend.level,
        ),
    )
    chosen = {section.anchor for section in urgent[:full]}
    return replace(
        page, sections=tuple(replace(section, full=section.anchor in chosen) for section in page.sections)
    )


async def _with_reasons(tx: Transaction, state: PullState, page: PullPage) -> PullPage:
    """Compare the failures on the shown head with those elsewhere."""
    head = state.head(page.sha) if page.sha else None
    if head is None:
        return page
    base_ref = state.record["base_ref"] if state.record else None
    view = (await compare_failures(tx, head, base_ref=base_ref)).view
    known = {backend.repo: backend for backend in view.backends}
    sections = tuple(_with_history(section, known.get(section.backend.repo)) for section in page.sections)
    answers = view.answers if page.current else ()
    return replace(page, sections=sections, base=view.base, answers=answers)


def _with_history(section: BackendSection, known: Backend | None) -> BackendSection:
    if section.relayed or known is None or known is section.backend:
        return section
    return replace(section, backend=known)


def _names(settings: Settings, repo: str, record: PullRow | None) -> tuple[str, ...]:
    """Return how our rows spell the upstream's name, the likeliest spelling first."""
    watched = [name for name in settings.upstream_repo if name.casefold() == repo.casefold()]
    known = [record["repo"]] if record else []
    return (*watched, *known, repo)


def _shown_page(
    settings: Settings,
    state: PullState,
    names: tuple[str, ...],
    *,
    relayed: Sequence[JobRow],
    seen: Mapping[str, int],
    sha: str | None,
) -> PullPage:
    known = {head.view.head_sha: head.view.backends for head in state.heads}
    named = {head.view.head_sha for head in state.heads if not head.judged}
    reported = (sha for row in reversed(relayed) if (sha := row["head_sha"]))
    judged = list(dict.fromkeys([*known, *reported]))
    shas = _newest_first(judged, seen)
    page = f"{settings.url}/{state.repo}/pull/{state.number}"
    lines = []
    for head in shas:
        others = _relayed([row for row in relayed if row["head_sha"] == head], page)
        lines.append(
            (HeadLine(sha=head, backends=(*known.get(head, ()), *others), judged=head not in named), others)
        )
    chosen = _choose_head(lines, sha)
    line, others = chosen or (None, [])
    return PullPage(
        repo=state.repo,
        number=state.number,
        page_url=page,
        record=state.record,
        sha=line.sha if line else None,
        heads=tuple(line for line, _ in lines),
        sections=_sections(known.get(line.sha, ()) if line else (), others),
        names=names,
    )


def _newest_first(judged: Sequence[str], seen: Mapping[str, int]) -> list[str]:
    """Sort the heads by when they were last seen; those of the same second stay in the order of judging.

    A head that was judged but never seen comes just before the one judged before it; the first one judged is current.
    """
    at, older = dict(seen), 0
    for sha in reversed(judged):
        older = at[sha] = seen.get(sha) or older
    shas = dict.fromkeys([*judged, *seen])
    return sorted(shas, key=lambda sha: (sha not in judged[:1], -at[sha]))


def _choose_head(
    lines: list[tuple[HeadLine, list[Backend]]], sha: str | None
) -> tuple[HeadLine, list[Backend]] | None:
    if sha is None:
        return lines[0] if lines else None
    for line, others in lines:
        if line.sha.startswith(sha):
            return line, others
    heads = ", ".join(line.sha[:12] for line, _ in lines[:20])
    raise UNKNOWN_HEAD.because(f"this pull request has no head {sha}; its heads: {heads}")


def _sections(dispatched: Iterable[Backend], relayed: Iterable[Backend]) -> tuple[BackendSection, ...]:
    return (
        *(BackendSection(backend=backend, anchor=anchor_of(backend.repo)) for backend in dispatched),
        *(
            BackendSection(backend=backend, anchor=anchor_of(backend.repo) + "-relay", relayed=True)
            for backend in relayed
        ),
    )


def _relayed(reported: Iterable[JobRow], page: str) -> list[Backend]:
    """Judge the backends that an outside relay reported: as L2, and without confirmation by GitHub."""
    by_backend: dict[str, list[JobRow]] = {}
    for row in reported:
        by_backend.setdefault(row["downstream_repo"].casefold(), []).append(row)
    backends = []
    for jobs in by_backend.values():
        last = jobs[-1]
        anchor = f"{page}?sha={last['head_sha']}#{anchor_of(last['downstream_repo'])}-relay"
        backends.append(relayed(jobs, page_url=anchor))
    return sorted(backends, key=lambda backend: (-backend.level, backend.repo.casefold()))
