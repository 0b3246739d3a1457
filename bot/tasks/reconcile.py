"""reconcile: what no delivery told is found by listing: open pull requests, and what still runs (see in_flight).

What differs from our records is stored as a delivery of source `api`, so that the handlers repair the records and ask
for whatever is due. Its GUID is made of what it says: the same news twice is one delivery.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from bot import relay, upstream
from bot.domain.reading import as_time
from bot.errors import GitHubRefused, RetryLater
from bot.store import allowlists, archive, inbox, sweeps, unsettled
from bot.tasks import delivery_log, in_flight, redeliver, told

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github import Client
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.reconcile")

Row = dict[str, Any]
NAME = "reconcile"
MOST_PULLS = 100  # asked about one by one in a run; the others' turn comes ten minutes later
PAGE = 50  # pull requests listed at once: each has 25 KB, and two pages are held at a time
MARGIN = 5 * 60_000  # milliseconds news of a pull request may take before we look ourselves
SOON = 5.0  # seconds until what was stored is surely recorded
LOG_BROKEN = 3_600_000  # milliseconds without a complete sweep of the log until we no longer wait for it


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An open pull request as GitHub lists it."""

    number: int
    repository_id: int
    head: str
    base_ref: str
    title: str
    draft: bool
    labels: frozenset[str]
    created_at: int
    updated_at: int


@dataclass(frozen=True, kw_only=True)
class News:
    """A pull request of which our records are behind, and the action that says so."""

    number: int
    action: str  # as GitHub would have called it; reconciled where nothing but the record is behind
    guid: str
    shown: bool = False  # our check runs are on it


async def run(context: Context, _task: Task) -> None:
    """Compare every upstream repository's open pull requests, and everything in flight, with our records."""
    async with context.store.transaction() as tx:
        since = (await sweeps.begin(tx, context.github.app_id, NAME))["created_at"]
        relaying = await allowlists.in_force(tx) is not None  # else even what came in waits to be relayed
        settled = await _settled_until(context, tx) if relaying else 0
    found, failures = await in_flight.ask(context), []
    for repo in context.settings.upstream_repo:
        for look in (partial(_pulls, since=since, settled=settled), in_flight.find):
            try:
                found += await look(context, repo)
            except (GitHubRefused, RetryLater) as error:  # no reason to leave the others alone
                log.warning("what is open and running cannot be listed", repo=repo, reason=str(error))
                failures.append(error)
    if found:
        log.warning("records were behind", repaired=found)
    if failures:
        raise failures[0]  # not finished: its age tells the operator
    async with context.store.transaction() as tx:
        await sweeps.finish(tx, context.github.app_id, NAME, reached=settled, found=found)


async def _settled_until(context: Context, tx: Transaction) -> int:
    """Return until when (epoch milliseconds) everything GitHub's delivery log holds has come in or is lost.

    News younger than that is waited for: relaying it here and again when its delivery comes would run every backend
    twice.
    """
    app_id, ours = context.github.app_id, await delivery_log.our_accounts(context, tx)
    swept = await sweeps.get(tx, app_id, redeliver.NAME)
    reached = (swept["reached"] or 0) if swept else 0
    if swept and swept["tried_at"] is not None and swept["tried_at"] < tx.now - LOG_BROKEN:
        reached = max(reached, tx.now - LOG_BROKEN)
    coming = (
        await sweeps.oldest_missing(tx, app_id, most_asks=redeliver.WAITED_FOR, accounts=ours),
        await archive.oldest_unhandled(tx),
    )
    return min([reached, *(at for at in coming if at is not None)]) - MARGIN


async def _pulls(context: Context, repo: str, *, since: int, settled: int) -> int:
    """Repair what is recorded of one repository's pull requests; returns how many were behind.

    Raises GitHubRefused when they cannot be listed, RetryLater when GitHub has no answer, also in their midst.
    """
    client = context.github.client(repo, pull_requests="read")
    listed = await _list(client)
    ripe = [pull for pull in listed if pull.updated_at < settled]
    numbers = [pull.number for pull in ripe]
    async with context.store.read() as tx:
        known = await unsettled.pulls(tx, repo, numbers)
        relayed = await unsettled.dispatched(tx, repo, numbers)
        unsent = await unsettled.dropped(tx, repo, numbers)
        dropped = {(row["pr_number"], row["head_sha"], row["base_ref"]) for row in unsent}
        news = [one for pull in ripe if (one := _news(pull, known, relayed, since=since))]
        there = {pull.number for pull in listed}
        news += [
            _gone(row) for number, row in known.items() if row["state"] == "open" and number not in there
        ]
        heard = await inbox.known(tx, [one.guid for one in news])
    for pull in ripe:
        if (pull.number, pull.head, pull.base_ref) in dropped:
            async with context.store.transaction() as tx:
                await relay.resume(tx, repo, pull.number)
    fresh = [one for one in news if one.guid not in heard]
    # any: some may be refused, or end this, every time
    some = random.sample(fresh, min(len(fresh), MOST_PULLS))
    return sum([await _store(context, client, one, settled) for one in some])


async def _list(client: Client) -> list[Listed]:
    url = client.path("pulls{?state,per_page}")
    listed = []
    async for pull in client.getiter(url, {"state": "open", "per_page": str(PAGE)}):
        base = pull["base"]["repo"]
        listed.append(
            Listed(
                number=pull["number"],
                repository_id=base["id"],
                head=pull["head"]["sha"],
                base_ref=pull["base"]["ref"],
                title=pull["title"],
                draft=pull["draft"],
                labels=frozenset(label["name"] for label in pull["labels"]),
                created_at=as_time(pull["created_at"]) or 0,
                updated_at=as_time(pull["updated_at"]) or 0,
            )
        )
    return listed


def _news(
    pull: Listed,
    known: dict[int, Row],
    relayed: dict[int, set[tuple[str, str | None]]],
    *,
    since: int,
) -> News | None:
    """Return what should have been told of an open pull request, None when we know it all.

    One that was open before this bot first looked (`since`) and whose head has not changed is not relayed.
    """
    record, told_of = known.get(pull.number), relayed.get(pull.number, set())
    moved = record is not None and record["head_sha"] != pull.head
    ours = pull.created_at >= since // 1000 * 1000 or bool(told_of) or moved
    if (pull.head, pull.base_ref) not in told_of and ours:
        action = "synchronize" if told_of or moved else "opened"
    elif record is None or _behind(record, pull):
        action = _missed(record, pull) if record and told_of else "reconciled"
    else:
        return None
    guid = told.guid(
        f"pull_request {pull.repository_id} {pull.number} {action} {pull.head} {pull.updated_at}"
    )
    return News(number=pull.number, action=action, guid=guid, shown=bool(told_of))


def _missed(record: Row, pull: Listed) -> str:
    """Return what backends should have been told since of a commit they were told of."""
    if (record["updated_at"] or 0) < pull.updated_at:  # else it is only the record that is wrong
        if record["state"] != "open":
            return "reopened"
        if record["draft"] and not pull.draft:
            return "ready_for_review"
    return "reconciled"


def _behind(record: Row, pull: Listed) -> bool:
    """Whether a record differs in what is shown or decides anything; the number of comments does not."""
    ours = tuple(record[name] for name in ("head_sha", "base_ref", "title", "draft"))
    same = (*ours, frozenset(record["labels"] or ())) == (
        pull.head, pull.base_ref, pull.title, pull.draft, pull.labels,
    )  # fmt: skip
    return (record["state"] != "open" or not same) and (record["updated_at"] or 0) <= pull.updated_at


def _gone(record: Row) -> News:
    """Return the news that a pull request is not among the open ones any more."""
    guid = told.guid(
        f"pull_request {record['repository_id']} {record['number']} closed {record['updated_at']}"
    )
    return News(number=record["number"], action="closed", guid=guid)


async def _store(context: Context, client: Client, news: News, settled: int) -> bool:
    """Ask for the whole pull request and store it as the delivery that should have come."""
    try:
        pull = await client.getitem(client.path("pulls/{number}"), {"number": str(news.number)})
    except GitHubRefused as error:
        log.info("a pull request cannot be read", pull=news.number, reason=str(error))
        return False
    if (news.action == "closed") != (pull["state"] == "closed") or (
        as_time(pull["updated_at"]) or 0
    ) >= settled:
        return False  # it has changed meanwhile: its own delivery is on the way
    body = {
        "action": news.action,
        "number": pull["number"],
        "pull_request": pull,
        "repository": pull["base"]["repo"],
        "sender": pull["user"],
    }
    async with context.store.transaction() as tx:
        if news.shown:
            tx.publish(
                upstream.named(context.settings, body["repository"]["full_name"]), news.number, delay=SOON
            )
        return await inbox.put(tx, told.as_incoming(news.guid, "pull_request", body, source="api"))
