"""One head of a pull request: its dispatches judged, and the backends still due on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.oot.allowlist.entry import Level
from bot.oot.verdict import verdict, view
from bot.oot.verdict.view import Pull, anchor_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.ingest.record_reads import LabelEventRow
    from bot.ingest.rows import PullRow
    from bot.oot.allowlist.allowlist import Allowlist, Entry
    from bot.oot.results.tables import IgnoreRow
    from bot.oot.verdict.facts import Facts
    from bot.oot.verdict.view import Backend


def asks_for(device: str | None, labels: Collection[str], prefixes: Sequence[str]) -> bool:
    """Return whether a pull request with these labels asks for a device."""
    return any(is_label(label, prefix + (device or "")) for label in labels for prefix in prefixes)


def is_label(name: str, wanted: str) -> bool:
    """Return whether both names are the same label to GitHub."""
    return name.casefold() == wanted.casefold()


def in_doubt(record: PullRow | None, events: Sequence[LabelEventRow]) -> bool:
    """Return whether GitHub should be asked for the labels; `events` are the newest label events, newest first.

    Of deliveries within one second any can be the last. That matters when two of them changed labels, or when the
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


NO_ALLOWLIST = "no valid allowlist has been read yet"


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head of a pull request: what is shown, and the facts it was judged from."""

    view: Pull
    facts: Mapping[str, Facts]  # of the dispatches that count, by the backend's case folded name
    entries: Mapping[str, Entry]
    expecting: bool = False  # newest head of an open pull request: blocking backends are due on it
    undispatched: tuple[Backend, ...] = ()  # that block, on a head that expects none any more
    recent: tuple[Facts, ...] = ()  # of the last dispatches to each backend
    judged: bool = True  # otherwise only its SHA was read


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What all heads of one pull request are judged by."""

    settings: Settings
    allowlist: Allowlist | None
    repo: str
    number: int
    labels: frozenset[str]
    ignored: Mapping[tuple[str, str], IgnoreRow]  # by head and the backend's case folded name
    now: int  # epoch milliseconds

    def head(
        self, sha: str, facts: Mapping[str, Facts], *, expecting: bool, base_ref: str | None = None
    ) -> Head:
        """Judge one head; `expecting`: it is the newest of an open pull request, so blocking backends are due on it.

        `base_ref` is the base branch of its last dispatch: a backend dispatched for another one alone is due again.
        """
        entries = {entry.key: entry for entry in self.allowlist.entries} if self.allowlist else {}
        blocking = {key: entry for key, entry in entries.items() if verdict.is_due(entry)}
        known = {
            key: verdict.as_blocking(one, entries.get(key))
            if (expecting and key in blocking) or one.dispatch["level"] >= Level.L4
            else one
            for key, one in facts.items()
        }
        missing = [entry for key, entry in blocking.items() if key not in known]
        shown = [
            self._dispatched(sha, one, entries.get(key))
            for key, one in known.items()
            if one.dispatch["level"] != Level.L1  # an unknown level is shown, and keeps the gate from passing
        ]
        if expecting:
            shown += self._undispatched(sha, missing)
        else:
            missing += [
                blocking[key]
                for key, one in known.items()
                if key in blocking and one.dispatch["base_ref"] != base_ref
            ]
        return Head(
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
        """Return some backends on a head, with who had them ignored there."""
        return tuple(_with_ignore(one, self.ignored.get((sha, one.repo.casefold()))) for one in backends)

    def _dispatched(self, sha: str, facts: Facts, entry: Entry | None) -> Backend:
        dispatch = facts.dispatch
        requested = dispatch["level"] >= Level.L4 or (
            verdict.level_of(dispatch, entry) == Level.L3
            and asks_for(dispatch["device"], self.labels, self.settings.label_prefixes)
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


def _with_ignore(backend: Backend, ignore: IgnoreRow | None) -> Backend:
    if ignore is None:
        return backend
    return replace(backend, ignored_by=ignore["login"], ignored_reason=ignore["reason"])
