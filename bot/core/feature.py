"""The description of a capability: what it adds to the program, by name; findings of checks; conditions for notices.

A plain description, not a framework: `bot/features.py` lists them, `bot.app` and the console read that list and pass
it on. Heavy parts are named as `"module:attribute"` and loaded on first use.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bot.web.access import Hidden

References = str | tuple[str, ...]  # one or several, as `module:attribute`
FindingStatus = Literal["ok", "warning", "error"]
# the event that tells of a beginning -> the one that tells of the end; "": the end is not told
CONDITION_EVENTS = {
    "backend_red": "backend_recovered",
    "backend_silent": "backend_reporting",
    "trunk_broken": "trunk_repaired",
    "gate_waiting": "",
    "culprit_found": "",
}


@dataclass(frozen=True, kw_only=True)
class NavigationEntry:
    """A page in a bar of links; `{repo}` in path and label stands for owner/name."""

    # site: on every page; repository: on all of its pages; any other: on the pages of the bar itself
    bar: str
    path: str
    label: str
    place: int = 50  # in its bar; at the same place by the order of the features
    shown: str = ""  # async (query, repo) -> whether there is something to show; empty: always
    covers: tuple[str, ...] = ()  # beginnings of the paths of further pages that belong to it


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One capability. Every field but the name may be left out."""

    name: str
    tables: References = ""  # modules: importing them adds their tables to the schema
    # task kind -> async (context, task): makes true what the task's key names, and may be run again at any time
    tasks: Mapping[str, str] = field(default_factory=dict)
    background: frozenset[str] = frozenset()  # task kinds that yield to all others: see `bot.worker`
    sums: tuple[str, ...] = ()  # daily sums, each a `bot.queue.sums.Sum`
    periodic: str = ""  # (settings) -> {task kind: seconds between two runs}
    # a tuple of `bot.web.view`: pages and JSON; their templates are in the folder `templates` beside its module
    views: References = ""
    # (aiohttp application): adds what is no view, and what templates and handlers need
    routes: References = ""
    # where other senders than GitHub deliver: a tuple of `bot.ingest.webhooks.Sender`
    senders: str = ""
    # event of their deliveries, with a dot in its name -> async (delivery, tx), as `handlers` are for GitHub's
    deliveries: Mapping[str, str] = field(default_factory=dict)
    # async (tx, changed rows by table): before a commit that changes any; may write rows and enqueue, never record
    before_commit: str = ""
    # (settings, features) -> a hook as the one before that runs after all of these, or None: for what needs both
    observer: str = ""
    # (settings, features) -> what is wrong with options that fit together badly, in words
    check_settings: str = ""
    on_start: str = ""  # async (tx): when the only worker on a database starts
    prune: References = ""  # async (context) -> {what: how many were deleted}
    retained: str = ""  # (table) -> condition of the rows that are not to be deleted, or None
    # async (tx, settings) -> Watched: repositories and accounts to look after, beside upstream
    repositories: str = ""
    # async (context, repository, Window) -> how many records were behind: compares them with what GitHub lists
    reconcile: References = ""
    # async (target) -> findings; several: each by the name of the finding that it could not be made
    doctor: str | Mapping[str, str] = ""
    # async (tx, settings, hidden) -> the path that / leads to, or None: the first that has one decides
    home: str = ""
    settings: str = ""  # a frozen dataclass of its options, read as `settings.of(ItsSettings)`
    commands: Mapping[str, str] = field(default_factory=dict)  # console command -> click command
    # kind of file -> the function that parses it in the parser child, and the receiver of what it returns
    parsers: Mapping[str, str] = field(default_factory=dict)
    receivers: Mapping[str, str] = field(default_factory=dict)
    # address below /admin -> async (request, its fields) -> bot.web.blocks.FormDone: a form of the administrator
    admin_forms: Mapping[str, str] = field(default_factory=dict)
    # further commands in comments: tuples of `bot.oot.commands.syntax.FurtherCommand`
    comment_commands: str = ""
    # async (context, tx, bot.core.feature.ConditionScope) -> conditions that hold now or are over, for notices
    conditions: str = ""
    # async (tx, settings, hidden) -> a function that sets gauges of `bot.core.metrics`, called before they are read
    metrics: str = ""
    # async (tx, settings, whether the administrator asks) -> what needs attention, for /readyz
    notes: str = ""
    exports: References = ""  # a tuple of `bot.db.exports.Export`: rows that sinks may have copies of
    # a tuple of `bot.db.exports.Addition`: what it knows of rows that another one exports
    additions: str = ""
    navigation: tuple[NavigationEntry, ...] = ()  # its pages in the bars of links, see `bot.web.html`
    # async (query, words, limit) -> what is called by these words, see `bot.web.search`
    search: References = ""
    # texts of what lies below its owner, place -> async (tx, subject) -> what it says; places: failures: what is known
    # of a commit's failures, for check runs; comment: job lines, for check runs as well; head: the tests of a pull
    # request's head, for both; remarks: further lines of its comment; missing: blocks, what there is where a page is
    # not; instead: the path that such an address leads to, or None; admin: a section of the administrator's page, of
    # the settings
    sections: Mapping[str, str] = field(default_factory=dict)


Features = tuple[Feature, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check."""

    status: FindingStatus
    name: str  # of the check, a word or two; stable, for machines
    detail: str
    next: str = ""  # what to do; empty when all is well


@dataclass(frozen=True, kw_only=True)
class ConditionSubject:
    """What a condition is about; receivers choose by it what they are told."""

    repo: str = ""  # upstream
    branch: str = ""
    backend: str = ""  # owner/name
    oncalls: tuple[str, ...] = ()
    path: str = ""  # the page on this bot


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition that holds or is known to be over. Any other is unknown: it stays as it was told.

    Conditions of one event and subject that begin together are told in one notice, under one heading.
    """

    event: str  # of EVENTS
    key: str  # the same for as long as it holds
    holds: bool
    heading: str  # texts may come from outside: they are escaped where they are shown
    lines: tuple[str, ...] = ()
    since: int | None = None  # epoch milliseconds
    subject: ConditionSubject


@dataclass(frozen=True, kw_only=True)
class ConditionScope:
    """Whom conditions are read for: some readers may not see all repositories."""

    hidden: Hidden
    told: Mapping[str, frozenset[str]]  # keys of the conditions that were told and are not over, by event

    def told_of(self, event: str) -> frozenset[str]:
        """Return the keys of an event's conditions that were told and are not over."""
        return self.told.get(event, frozenset())


def load(reference: str) -> Any:
    """Return what `module:attribute` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def folder(reference: str) -> Path:
    """Return the folder that the module of `module:attribute` is in."""
    module = importlib.import_module(reference.partition(":")[0])
    return Path(str(module.__file__)).parent


def load_each(features: Iterable[Feature], part: str) -> Iterator[Any]:
    """Yield one part of every feature that has it, in their order."""
    for feature in features:
        yield from map(load, references_of(feature, part))


def references_of(feature: Feature, part: str) -> tuple[str, ...]:
    """Return the references of one part of a feature."""
    references: References = getattr(feature, part)
    return references if isinstance(references, tuple) else (references,) if references else ()


def import_tables(features: Iterable[Feature]) -> None:
    """Add the tables of some features to the schema."""
    for feature in features:
        for module in references_of(feature, "tables"):
            importlib.import_module(module)


def sections(features: Iterable[Feature], place: str) -> Iterator[Any]:
    """Yield the functions that add blocks to a place, in the order of the features."""
    for feature in features:
        if place in feature.sections:
            yield load(feature.sections[place])


def ok(name: str, detail: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(status="ok", name=name, detail=detail)


def warning(name: str, detail: str, todo: str) -> Finding:
    """Return a finding that needs attention although everything works."""
    return Finding(status="warning", name=name, detail=detail, next=todo)


def error(name: str, detail: str, todo: str) -> Finding:
    """Return a finding that something does not work until it is fixed."""
    return Finding(status="error", name=name, detail=detail, next=todo)
