"""What is shown of one pull request? One head, every backend that was asked or has spoken, and its jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.verdict import Facts
from bot.domain.view import State, anchor_of
from bot.errors import Rejected
from bot.query import explained, pull_state
from bot.store import dispatches, pulls, reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.domain.view import Backend
    from bot.query import PullState
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.web.access import Hidden

Row = dict[str, Any]
NOWHERE = "-/-"  # no repository has this name
MOST_JUDGED = 300  # dispatches judged at once: of more, only the shown head's
FULL = 12  # backends told in full on one page, where there are more


@dataclass(frozen=True, kw_only=True)
class Section:
    """One backend on the shown head."""

    backend: Backend
    anchor: str
    relayed: bool = False  # told by an outside relay: shown, never a check run
    full: bool = True  # with its jobs; of many backends only those one has to look at


@dataclass(frozen=True, kw_only=True)
class HeadLine:
    """One head of the pull request, to choose from."""

    sha: str
    backends: tuple[Backend, ...]
    judged: bool = True  # else nobody looked at its backends: there are too many heads

    @property
    def red(self) -> int:
        """How many backends a person should look at."""
        return sum(one.state.red for one in self.backends)

    @property
    def unfinished(self) -> int:
        """How many backends more is expected of."""
        return sum(not one.state.finished for one in self.backends)

    @property
    def passed(self) -> int:
        """How many backends passed."""
        return sum(one.state is State.SUCCESS for one in self.backends)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A pull request as its page and its JSON show it."""

    repo: str
    number: int
    page_url: str
    record: Row | None
    sha: str | None  # the head shown; None before any is known
    heads: tuple[HeadLine, ...]  # newest first
    sections: tuple[Section, ...]  # of the head shown
    names: tuple[str, ...]  # how our rows may spell the repository

    @property
    def current(self) -> bool:
        """Whether the head shown is the newest."""
        return not self.heads or self.sha == self.heads[0].sha

    @property
    def unfinished(self) -> bool:
        """Whether more is expected to happen on the head shown."""
        return any(not section.backend.state.finished for section in self.sections)


async def read(
    tx: Transaction,
    settings: Settings,
    hidden: Hidden,
    *,
    repo: str,
    number: int,
    sha: str | None,
    full: int | None = None,
    wanted: str = "",
) -> Shown:
    """Return a pull request; raises Rejected 404 when it, or the head asked for, is unknown or hidden.

    With `full` only so many backends are told in full, the red ones first, and the one `wanted`.
    """
    # what is hidden is looked for where nothing is: it takes as long as what nobody knows
    where = NOWHERE if hidden.has(repo) else repo
    record = await pulls.get(tx, where, number)
    if record is not None and hidden.has_row(record):
        where, record = NOWHERE, None
    names = _names(settings, where, record)
    many = await dispatches.count_of_pull(tx, names[0], number) > MOST_JUDGED
    state = await pull_state(tx, settings, names[0], number, newest=0 if many else None, shown=sha or "")
    relayed = await reads.jobs_without_dispatch(tx, names, number)
    seen = await pulls.heads(tx, record) if record is not None else {}
    if record is None and not state.heads and not relayed:
        raise unknown(repo, number)
    found = _in_part(
        _shown(settings, state, names, relayed=relayed, seen=seen, sha=sha), full, wanted.casefold()
    )
    return await _explained(tx, state, found)


def _in_part(found: Shown, full: int | None, wanted: str) -> Shown:
    if full is None or len(found.sections) <= full:
        return found
    urgent = sorted(
        found.sections,
        key=lambda one: (
            one.backend.repo.casefold() != wanted,
            not one.backend.state.red,
            one.backend.state.finished,
            -one.backend.level,
        ),
    )
    chosen = {one.anchor for one in urgent[:full]}
    return replace(found, sections=tuple(replace(one, full=one.anchor in chosen) for one in found.sections))


async def _explained(tx: Transaction, state: PullState, found: Shown) -> Shown:
    """Return what is shown with the failures of the shown head compared with others."""
    head = state.head(found.sha) if found.sha else None
    if head is None:
        return found
    only = {one.backend.repo.casefold() for one in found.sections if one.full}
    base_ref = state.record["base_ref"] if state.record else None
    view = (await explained(tx, head, base_ref=base_ref, only=only)).view
    known = {backend.repo: backend for backend in view.backends}
    return replace(found, sections=tuple(_said(one, known.get(one.backend.repo)) for one in found.sections))


def _said(one: Section, known: Backend | None) -> Section:
    if one.relayed or known is None or known is one.backend:
        return one
    return replace(one, backend=known)


def unknown(repo: str, number: int) -> Rejected:
    """Return the refusal for a pull request nobody told us about."""
    return Rejected(404, "unknown_pull_request", f"nothing is known of pull request {number} of {repo[:200]}")


def _names(settings: Settings, repo: str, record: Row | None) -> tuple[str, ...]:
    """Return how the upstream's name is spelled in our rows, the likeliest first."""
    watched = [name for name in settings.upstream_repo if name.casefold() == repo.casefold()]
    known = [record["repo"]] if record else []
    return (*watched, *known, repo)


def _shown(
    settings: Settings,
    state: PullState,
    names: tuple[str, ...],
    *,
    relayed: list[Row],
    seen: Mapping[str, int],
    sha: str | None,
) -> Shown:
    known = {head.view.head_sha: head.view.backends for head in state.heads}
    named = {head.view.head_sha for head in state.heads if not head.judged}
    spoken = (row["head_sha"] for row in reversed(relayed) if row["head_sha"])
    judged = list(dict.fromkeys([*known, *spoken]))
    shas = _newest_first(judged, seen)
    page = f"{settings.url}/{state.repo}/pull/{state.number}"
    lines = []
    for head in shas:
        told = _relayed([row for row in relayed if row["head_sha"] == head], page)
        lines.append(
            (HeadLine(sha=head, backends=(*known.get(head, ()), *told), judged=head not in named), told)
        )
    chosen = _choose(lines, sha)
    line, told = chosen or (None, [])
    return Shown(
        repo=state.repo,
        number=state.number,
        page_url=page,
        record=state.record,
        sha=line.sha if line else None,
        heads=tuple(line for line, _ in lines),
        sections=_sections(known.get(line.sha, ()) if line else (), told),
        names=names,
    )


def _newest_first(judged: Sequence[str], seen: Mapping[str, int]) -> list[str]:
    """Return every head by when it was last seen to be one, those of one second as they were judged.

    What was judged but never seen stands just before what was judged before it; the first of all is the current one.
    """
    at, older = dict(seen), 0
    for sha in reversed(judged):
        older = at[sha] = seen.get(sha) or older
    shas = dict.fromkeys([*judged, *seen])
    return sorted(shas, key=lambda sha: (sha not in judged[:1], -at[sha]))


def _choose(
    lines: list[tuple[HeadLine, list[Backend]]], sha: str | None
) -> tuple[HeadLine, list[Backend]] | None:
    if sha is None:
        return lines[0] if lines else None
    for line, told in lines:
        if line.sha.startswith(sha):
            return line, told
    heads = ", ".join(line.sha[:12] for line, _ in lines[:20])
    raise Rejected(404, "unknown_commit", f"this pull request has no head {sha}; its heads: {heads}")


def _sections(asked: Iterable[Backend], told: Iterable[Backend]) -> tuple[Section, ...]:
    return (
        *(Section(backend=one, anchor=anchor_of(one.repo)) for one in asked),
        *(Section(backend=one, anchor=anchor_of(one.repo) + "-relay", relayed=True) for one in told),
    )


def _relayed(rows: list[Row], page: str) -> list[Backend]:
    """Return the backends an outside relay spoke for: judged as L2, no confirmation is awaited."""
    by_backend: dict[str, list[Row]] = {}
    for row in rows:
        by_backend.setdefault(row["downstream_repo"].casefold(), []).append(row)
    found = []
    for told in by_backend.values():
        last = told[-1]
        dispatch = {
            "backend": last["downstream_repo"],
            "level": 2,
            "device": None,
            "dispatched_at": None,
        }
        anchor = f"{page}?sha={last['head_sha']}#{anchor_of(last['downstream_repo'])}-relay"
        judged = verdict.backend(
            Facts(dispatch=dispatch, jobs=told), None, now=last["updated_at"], page_url=anchor
        )
        found.append(replace(judged, level=last["downstream_repo_level"]))
    return sorted(found, key=lambda one: (-one.level, one.repo.casefold()))
