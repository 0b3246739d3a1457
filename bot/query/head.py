"""How does one head of a pull request stand? Its dispatches judged, and what is still due on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.allowlist_entry import Level
from bot.domain.labels import asks_for
from bot.domain.view import Pull, anchor_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.domain.allowlist import Allowlist, Entry
    from bot.domain.verdict import Facts
    from bot.domain.view import Backend
    from bot.settings import Settings

Row = dict[str, Any]
NO_ALLOWLIST = "no valid allowlist has been read yet"


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head of a pull request: what people see, and what it was judged from."""

    view: Pull
    facts: Mapping[str, Facts]  # by the backend's case folded name
    entries: Mapping[str, Entry]
    expecting: bool = False  # an open pull request's newest head: blocking backends are due on it
    told: tuple[Facts, ...] = ()  # every dispatch of this commit


def judge(
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
