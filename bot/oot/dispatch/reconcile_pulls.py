"""Open pull requests compared with our records: what no delivery brought is stored as if one had."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import structlog

from bot.core.errors import GitHubRefused
from bot.core.json_fields import as_time
from bot.ingest import deliveries, inbox
from bot.ingest.repositories import canonical_name
from bot.ingest.tables import PULL_REQUEST
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch import rows
from bot.oot.dispatch.redispatch import redispatch_superseded
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.ingest.reconcile import Window
    from bot.ingest.record_rows import PullRow

log = structlog.get_logger("bot.oot.dispatch.reconcile_pulls")

MOST_PULLS = 100  # read one by one in a run; the others' turn comes ten minutes later
PAGE = 50  # pull requests per page: each has 25 KB, and two pages are held at a time
SOON = 5.0  # seconds after which the stored delivery has certainly been recorded


@dataclass(frozen=True, kw_only=True)
class MissedEvent:
    """An event of a pull request that our records lack."""

    number: int
    action: str  # as GitHub would have named it; `reconciled` where only the record is behind
    guid: str
    dispatched: bool = False  # so our check runs are on the pull request


async def reconcile(context: Context, repo: str, window: Window) -> int:
    """Repair our records of a repository's pull requests; returns how many were behind.

    Raises GitHubRefused if they cannot be listed, RetryLater if GitHub stops answering, even halfway.
    """
    async with context.store.read() as tx:
        dispatching = await allowlists.read_in_force(tx) is not None
    # without an allowlist even recorded events wait to be dispatched
    settled = window.complete_until if dispatching else 0
    client = context.github.client(repo, pull_requests="read")
    listed = await _list(client)
    comparable = [pull for pull in listed if (pull["updated_at"] or 0) < settled]
    async with context.store.read() as tx:
        missed = await _missed(tx, repo, listed, comparable, since=window.since)
        unsent = await rows.superseded_unsent(tx, repo, _numbers(comparable))
    superseded = {(row["pr_number"], row["head_sha"], row["base_ref"]) for row in unsent}
    for pull in comparable:
        number = pull["number"] or 0
        if (number, pull["head_sha"], pull["base_ref"]) in superseded:
            async with context.store.transaction() as tx:
                await redispatch_superseded(tx, repo, number)
    # a random choice, as some may be refused, or end this run, every time
    chosen = random.sample(missed, min(len(missed), MOST_PULLS))
    return sum([await _store(context, client, event, settled) for event in chosen])


async def _list(client: Client) -> list[PullRow]:
    url = client.path("pulls{?state,per_page}")
    pages = client.getiter(url, {"state": "open", "per_page": str(PAGE)})
    return [_listed(pull) async for pull in pages]


def _listed(pull: dict[str, Any]) -> PullRow:
    """Return an open pull request as GitHub lists it, without its text."""
    values = {name: read(pull) for name, read in PULL_REQUEST.readers if name != "body"}
    start = {"repository_id": pull["base"]["repo"]["id"], "repo": "", "received_at": 0, "body": None}
    return cast("PullRow", start | values)


def _numbers(pulls: Sequence[PullRow]) -> list[int]:
    return [number for pull in pulls if (number := pull["number"]) is not None]


async def _missed(
    tx: Transaction, repo: str, listed: Sequence[PullRow], comparable: Sequence[PullRow], *, since: int
) -> list[MissedEvent]:
    """Return the missed events of a repository's pull requests that are not stored yet."""
    numbers = _numbers(comparable)
    recorded = await rows.recorded_pulls(tx, repo, numbers)
    dispatched = await rows.dispatched_heads(tx, repo, numbers)
    missed = [
        _missed_event(pull, recorded.get(number), dispatched.get(number, set()), since=since)
        for number, pull in zip(numbers, comparable, strict=True)
    ]
    open_now = set(_numbers(listed))
    missed += [
        _closed(row) for number, row in recorded.items() if row["state"] == "open" and number not in open_now
    ]
    events = [event for event in missed if event is not None]
    stored = await inbox.stored_guids(tx, [event.guid for event in events])
    return [event for event in events if event.guid not in stored]


def _missed_event(
    pull: PullRow, record: PullRow | None, dispatched: set[tuple[str, str | None]], *, since: int
) -> MissedEvent | None:
    """Return the missed event of an open pull request, given its record and dispatched heads; None if there is none.

    A pull request opened before this bot first looked (`since`), with an unchanged head, is not dispatched.
    """
    moved = record is not None and record["head_sha"] != pull["head_sha"]
    due = (pull["created_at"] or 0) >= since // 1000 * 1000 or bool(dispatched) or moved
    if (pull["head_sha"], pull["base_ref"]) not in dispatched and due:
        action = "synchronize" if dispatched or moved else "opened"
    elif record is None or _is_behind(record, pull):
        action = _missed_action(record, pull) if record and dispatched else "reconciled"
    else:
        return None
    number, version = pull["number"] or 0, f"{pull['head_sha']} {pull['updated_at']}"
    guid = deliveries.content_guid(f"pull_request {pull['repository_id']} {number} {action} {version}")
    return MissedEvent(number=number, action=action, guid=guid, dispatched=bool(dispatched))


def _missed_action(record: PullRow, pull: PullRow) -> str:
    """Return which event of an already dispatched commit was missed."""
    if (record["updated_at"] or 0) < (pull["updated_at"] or 0):  # else only the record is wrong
        if record["state"] != "open":
            return "reopened"
        if record["draft"] and not pull["draft"]:
            return "ready_for_review"
    return "reconciled"


def _is_behind(record: PullRow, pull: PullRow) -> bool:
    """Whether a record differs in anything that is shown or matters to a decision; the number of comments does not."""
    same = all(
        (
            record["state"] == pull["state"],
            record["head_sha"] == pull["head_sha"],
            record["base_ref"] == pull["base_ref"],
            record["title"] == pull["title"],
            record["draft"] == pull["draft"],
            set(record["labels"] or ()) == set(pull["labels"] or ()),
        )
    )
    return not same and (record["updated_at"] or 0) <= (pull["updated_at"] or 0)


def _closed(record: PullRow) -> MissedEvent:
    """Return the closing of a pull request that GitHub no longer lists as open."""
    guid = deliveries.content_guid(
        f"pull_request {record['repository_id']} {record['number']} closed {record['updated_at']}"
    )
    return MissedEvent(number=record["number"] or 0, action="closed", guid=guid)


async def _store(context: Context, client: Client, event: MissedEvent, settled: int) -> bool:
    """Read the whole pull request and store it as the missed delivery; returns False if that is not needed."""
    try:
        pull = await client.getitem(client.path("pulls/{number}"), {"number": str(event.number)})
    except GitHubRefused as error:
        log.info("a pull request cannot be read", pull=event.number, reason=str(error))
        return False
    is_other_state = (event.action == "closed") != (pull["state"] == "closed")
    if is_other_state or (as_time(pull["updated_at"]) or 0) >= settled:
        return False  # it has changed meanwhile: its own delivery is on the way
    repository = pull["base"]["repo"]
    body = {
        "action": event.action,
        "number": pull["number"],
        "pull_request": pull,
        "repository": repository,
        "sender": pull["user"],
    }
    async with context.store.transaction() as tx:
        if event.dispatched:
            repo = canonical_name(context.settings, repository["full_name"])
            request_publish(tx, repo, event.number, delay=SOON)
        incoming = deliveries.to_incoming(event.guid, "pull_request", body, source="api")
        return await inbox.store_delivery(tx, incoming)
