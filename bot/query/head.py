"""How does one head of a pull request stand? Its dispatches judged, and what is still due on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.allowlist_entry import Level
from bot.domain.labels import asks_for
from bot.domain.view import Pull, anchor_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    untold: tuple[
        Backend, ...
    ] = ()  # those that block and were not told in the end, where none is due any more
    told: tuple[Facts, ...] = ()  # every dispatch of this commit
    judged: bool = True  # else nothing of it was read but its name


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What all heads of one pull request are judged by."""

    settings: Settings
    allowlist: Allowlist | None
    repo: str
    number: int
    labels: frozenset[str]
    ignored: Mapping[tuple[str, str], Row]  # by head and the backend's case folded name
    now: int  # epoch milliseconds

    def head(
        self, sha: str, facts: Mapping[str, Facts], *, expecting: bool, base_ref: str | None = None
    ) -> Head:
        """Judge one head; `expecting`: it is an open pull request's, so blocking backends are due on it.

        `base_ref` is the base branch it was last for: what a backend was told for another is not all it was to be told.
        """
        entries = {entry.key: entry for entry in self.allowlist.entries} if self.allowlist else {}
        blocking = {key: entry for key, entry in entries.items() if verdict.is_due(entry)}
        due = blocking if expecting else {}
        known = {
            key: verdict.blocking(told, entries.get(key))
            if key in due or told.dispatch["level"] >= Level.L4
            else told
            for key, told in facts.items()
        }
        seen = [
            self._backend(sha, told, entries.get(key))
            for key, told in known.items()
            if told.dispatch["level"] > Level.L1
        ]
        untold = [
            verdict.undispatched(entry, page_url=self._anchor(sha, entry.repo))
            for key, entry in blocking.items()
            if key not in known
        ]
        seen += untold if expecting else ()
        untold += [
            verdict.undispatched(blocking[key], page_url=self._anchor(sha, told.dispatch["backend"]))
            for key, told in known.items()
            if key in blocking and told.dispatch["base_ref"] != base_ref
        ]
        seen.sort(key=lambda backend: (-backend.level, backend.label.casefold()))
        view = Pull(
            repo=self.repo,
            number=self.number,
            head_sha=sha,
            backends=self._but_ignored(sha, seen),
            page_url=self._page,
            help_url=f"{self.settings.url}/oot/levels",
            gate_unknown="" if self.allowlist else NO_ALLOWLIST,
        )
        return Head(
            view=view,
            facts=known,
            entries=entries,
            expecting=expecting,
            untold=() if expecting else self._but_ignored(sha, untold),
        )

    def _but_ignored(self, sha: str, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Return some backends on a head, with who said that one is to be ignored there."""
        return tuple(_ignored(one, self.ignored.get((sha, one.repo.casefold()))) for one in backends)

    def _backend(self, sha: str, told: Facts, entry: Entry | None) -> Backend:
        """Judge a backend that was told of the head."""
        dispatch = told.dispatch
        asked = dispatch["level"] >= Level.L4 or (
            verdict.level_of(dispatch, entry) == Level.L3
            and asks_for(dispatch["device"], self.labels, self.settings.label_prefixes)
        )
        page_url = self._anchor(sha, dispatch["backend"])
        return verdict.backend(told, entry, now=self.now, page_url=page_url, asked=asked)

    @property
    def _page(self) -> str:
        return f"{self.settings.url}/{self.repo}/pull/{self.number}"

    def _anchor(self, sha: str, backend: str) -> str:
        return f"{self._page}?sha={sha}#{anchor_of(backend)}"


def _ignored(backend: Backend, said: Row | None) -> Backend:
    if said is None:
        return backend
    return replace(backend, ignored_by=said["login"], ignored_reason=said["reason"])
