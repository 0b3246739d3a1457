"""GET /api/oot/allowlist: the entries in force, and whether the newest version is valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from bot.core.settings import PULL_ACTIONS
from bot.oot.allowlist import entry as terms
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.versions import VersionRow
from bot.pages.backends.interface import NOTHING_TO_SHOW, RESULTS, Level
from bot.web.answers import Answer, RowAnswer, fill_struct, one_of
from bot.web.view import Json, View

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.oot.allowlist import allowlist
    from bot.web.parameters import Query


class Entry(Struct, frozen=True):
    """A backend of the allowlist and its terms."""

    repo: str
    level: Level
    device: str | None
    oncalls: list[str]
    repository_id: int | None
    events: list[Annotated[str, one_of(terms.EVENTS)]]
    actions: list[Annotated[str, one_of(PULL_ACTIONS)]]
    refs: list[str]
    deletions: bool
    nightly: Annotated[str, one_of(terms.NIGHTLY)]
    policy: Annotated[str, one_of(terms.POLICIES)]
    checks: Annotated[str, one_of(terms.CHECKS)]
    conclusion: Annotated[str, one_of(terms.CONCLUSIONS)]
    confirm: bool
    callback_token: Annotated[str, one_of(terms.CALLBACK_TOKENS)]
    static_key: Annotated[str, one_of(terms.STATIC_KEYS)]
    answers: Annotated[str, one_of(terms.ANSWERS)]
    dispatch: Annotated[str, one_of(terms.DISPATCHES)]
    workflow_file: str | None
    job_timeout: int | None
    start_timeout: int | None
    rate_limit: int | None


class AllowlistVersion(
    RowAnswer, row=VersionRow, only=("source", "valid", "errors", "loaded_at"), frozen=True
):
    """A version of the allowlist."""

    errors: list[str]


class Allowlist(Answer, frozen=True, kw_only=True):
    """The entries in force, and whether the newest version is valid"""

    in_force: bool
    entries: list[Entry]
    newest: AllowlistVersion | None


@dataclass(frozen=True, kw_only=True)
class AllowlistVersions:
    """The allowlist in force, and its newest version, which may be wrong."""

    in_force: allowlist.Allowlist | None
    newest: VersionRow | None
    actions: Collection[str]  # of an entry that names none


async def read_allowlist(query: Query) -> AllowlistVersions:
    """Read the allowlist."""
    return AllowlistVersions(
        in_force=await allowlists.read_in_force(query.tx),
        newest=await allowlists.read_newest(query.tx),
        actions=query.settings.pull_actions,
    )


def answer_allowlist(versions: AllowlistVersions) -> Allowlist:
    """Return the entries in force, and the errors of the newest version."""
    newest, entries = versions.newest, versions.in_force.entries if versions.in_force else ()
    errors = (newest["error"] or "").splitlines() if newest else []
    return Allowlist(
        in_force=versions.in_force is not None,
        entries=[_entry(entry, versions.actions) for entry in entries],
        newest=fill_struct(AllowlistVersion, newest, errors=errors) if newest else None,
    )


VIEW = View(
    read=read_allowlist,
    of_upstream=True,
    json=Json(
        path="/api/oot/allowlist",
        answer=answer_allowlist,
        content=Allowlist,
        name="allowlist",
        summary="Backends that take part, and their terms",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
    ),
)


def _entry(entry: terms.Entry, otherwise: Collection[str]) -> Entry:
    """Return a backend of the allowlist; one that names no actions has those of PULL_ACTIONS, `otherwise`."""
    actions = otherwise if entry.actions is None else entry.actions
    return fill_struct(Entry, entry, events=sorted(entry.events), actions=sorted(actions))
