"""Which backends need not be told of an event? Of a commit for a base branch once is enough, unless it was in vain."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bot.domain import verdict
from bot.domain.reading import Kind, decode, read
from bot.domain.view import State
from bot.query.facts import facts_of
from bot.store import dispatches, inbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.allowlist import Allowlist
    from bot.store import Transaction

Row = dict[str, Any]
SAME_COMMIT = frozenset({"edited", "ready_for_review", "reopened"})
VAIN = frozenset({State.CANCELLED, State.NEVER_STARTED, State.NOT_INSTALLED, State.DISPATCH_FAILED})
MOST_REOPENED = 3  # times a backend that has not ended is told of one commit because of that
MOST_READ = 10  # events a commit was relayed by, the last ones, whose times are looked at


async def already(tx: Transaction, about: Row, body: Row, allowlist: Allowlist) -> set[str]:
    """Return the backends that are not told of an event, given what its dispatches have in common and its body.

    Those whose last dispatch of this commit for this base branch was not in vain, where the event brought no commit or
    is heard of late. They would only run once more, as often as an author closes and reopens. The end of a draft is
    told once all the same: some run nothing before.
    """
    action = about["action"]
    rows = await dispatches.of_pull(tx, about["upstream_repo"], about["pr_number"], heads={about["head_sha"]})
    rows = [row for row in rows if row["base_ref"] == about["base_ref"]]
    late = await _is_late(tx, rows, about, body)
    if not late and action not in SAME_COMMIT:
        return set()
    before = Counter(row["backend_key"] for row in rows if row["action"] == action)
    facts = await facts_of(tx, list(verdict.newest(rows).values()))
    found = set()
    for told in facts.values():
        key = told.dispatch["backend_key"]
        state = verdict.backend(told, allowlist.find(key), now=tx.now, page_url="").state
        # closing has the backend cancel what runs, and it may not say so
        ended = action == "reopened" and not late and not state.finished and before[key] < MOST_REOPENED
        if state not in VAIN and not ended:
            found.add(key)
    return found & set(before) if action == "ready_for_review" and not late else found


async def _is_late(tx: Transaction, rows: Sequence[Row], about: Row, body: Row) -> bool:
    """Whether the commit was relayed by a later event, or by what was read at GitHub in place of this one."""
    at = _time(body)
    if at is None:
        return False
    others = dict.fromkeys(
        row["source_guid"] for row in reversed(rows) if row["source_guid"] != about["source_guid"]
    )
    for guid in [*others][:MOST_READ]:
        source = await inbox.find(tx, guid)
        told_at = _time(decode(source["body"])) if source else None
        # GitHub's times have seconds: of two events of one second neither is the later
        if source and told_at and (told_at > at or (told_at == at and source["source"] == "api")):
            return True
    return False


def _time(body: Row) -> int | None:
    found: int | None = read(body, ("pull_request", "updated_at"), Kind.TIME)
    return found
