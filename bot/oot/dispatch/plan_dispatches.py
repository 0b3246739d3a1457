"""The task `relay`: records a dispatch per backend for an upstream delivery (key: its GUID)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from bot.core.errors import GiveUp, RetryLater
from bot.core.json_fields import Kind, decode, read_member
from bot.ingest import inbox, record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch import commits, redispatch
from bot.oot.dispatch.decide import decide
from bot.oot.dispatch.rows import backend_columns, new_dispatch
from bot.oot.results import dispatches, task_keys
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict.verdict import State, newest_by_backend, of_own_events, read_facts, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.dispatch.decide import Commit
    from bot.oot.results.tables import DispatchEvent, DispatchRow
    from bot.queue.tasks import Task

ARRIVES_WITHIN = 60_000  # milliseconds: GitHub sends the event of a new head and that of its tag in any order
ASK_AGAIN = 5.0  # seconds
MOST_DIGITS = 9
UNSENT = frozenset({"pending", "held"})  # a closing, and what comes late, is not decided on
log = structlog.get_logger("bot.oot.dispatch.plan_dispatches")

NO_COMMIT = "0" * 40  # GitHub's SHA for a ref that did not exist before, or no longer exists
SAME_COMMIT = frozenset({"edited", "ready_for_review", "reopened"})  # actions that bring no commit
WORTHLESS = frozenset(
    {
        State.CANCELLED,
        State.NEVER_STARTED,
        State.NOT_RUN,
        State.NOT_INSTALLED,
        State.DISPATCH_FAILED,
        State.SKIPPED,
        State.UNASKED,
    }
)
MOST_REOPENED = 3  # dispatches of one commit by reopening, to a backend that has not finished
MOST_EVENTS = 10  # newest events a commit was dispatched by, whose times are compared


class Choice(NamedTuple):
    """The state a dispatch is recorded in, and the reason where a rule decided against it."""

    state: str
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Decides how an event's commit is recorded for each backend."""

    commit: Commit | None  # None: every backend is sent it
    prefixes: Sequence[str]

    def choose(self, entry: Entry, state: str) -> Choice:
        """Choose how to record a dispatch that would otherwise be recorded in `state`."""
        if self.commit is None or state not in UNSENT or not entry.selective:
            return Choice(state)
        decision = decide(entry, self.commit, prefixes=self.prefixes)
        return Choice(state) if decision.send else Choice(decision.state, decision.why)


def named_number(patterns: Iterable[str], ref: str) -> int | None:
    """Return the number of the pull request that a ref names."""
    for pattern in patterns:
        before, _, after = pattern.partition("{number}")
        number = ref.removeprefix(before).removesuffix(after)
        if ref == before + number + after and number.isascii() and number.isdigit():
            return int(number) if len(number) <= MOST_DIGITS and number[0] != "0" else None
    return None


async def find_pull(
    tx: Transaction, settings: Settings, guid: str, *, repo: str, ref: str, sha: str
) -> PullRow | None:
    """Return, locked, the open pull request that a push's ref names and whose head its commit is or was.

    Raises RetryLater while the commit may still turn out to be one.
    """
    number = named_number(settings.pull_refs, ref)
    if number is None:
        return None
    await dispatches.lock_pull(tx, repo, number)
    pull = await record_store.read_pull(tx, repo, number)
    if pull is not None and pull["state"] != "open":
        return None
    if pull is not None and (pull["head_sha"] == sha or sha in await record_store.read_heads(tx, pull)):
        return pull
    delivery = await inbox.find_delivery(tx, guid)
    if delivery is not None and tx.now - delivery["received_at"] < ARRIVES_WITHIN:
        raise RetryLater(f"{ref} may name a head that is not known yet", after=ASK_AGAIN)
    return None


async def make_chooser(
    tx: Transaction, settings: Settings, allowlist: Allowlist, repo: str, commit: Commit | None
) -> Chooser:
    """Make the chooser for a commit, with the results that backends can reuse."""
    if commit is not None:
        same = await commits.read_same(tx, settings, allowlist.entries, repo, commit.sha)
        commit = replace(commit, same=same)
    return Chooser(commit=commit, prefixes=settings.label_prefixes)


@dataclass(frozen=True, kw_only=True)
class PullEvent:
    """An event of a pull request."""

    columns: DispatchEvent  # what all its dispatches have in common
    author_association: str | None
    updated_at: int | None  # epoch milliseconds, in GitHub's whole seconds

    @classmethod
    def read(cls, guid: str, body: dict[str, Any]) -> PullEvent:
        """Read a delivery's body; raises KeyError, TypeError or AttributeError."""
        pull = body["pull_request"]
        columns: DispatchEvent = {
            "delivery_id": guid,
            "source_guid": guid,
            "upstream_repo": body["repository"]["full_name"],
            "event_type": "pull_request",
            "action": body["action"],
            "pr_number": pull["number"],
            "head_sha": pull["head"]["sha"],
            "base_sha": pull["base"]["sha"],
            "base_ref": pull["base"]["ref"],
            "ref": None,
            "labels": [label["name"] for label in pull.get("labels") or ()],
        }
        association = pull.get("author_association")
        return cls(columns=columns, author_association=association, updated_at=_updated_at(body))

    @property
    def repo(self) -> str:
        """The repository it happened in."""
        return self.columns["upstream_repo"]

    @property
    def number(self) -> int:
        """The pull request's number."""
        return self.columns["pr_number"] or 0

    @property
    def action(self) -> str:
        """What happened."""
        return self.columns["action"] or ""

    @property
    def head_sha(self) -> str:
        """The pull request's newest commit."""
        return self.columns["head_sha"] or ""


async def plan_dispatches(context: Context, task: Task) -> None:
    """Record the dispatches of one delivery."""
    async with context.store.read() as tx:
        event, body = await task_keys.read_delivery(context, tx, task)
        allowlist = await allowlists.read_in_force(tx)
    try:
        commit = await commits.read_commit(context, allowlist, event, body)
        async with context.store.transaction() as tx:
            tx.cause = task.key
            await PLANNERS[event](tx, context.settings, task.key, body, commit)
    except (KeyError, TypeError, AttributeError) as error:
        raise GiveUp(f"the {event} event lacks what a dispatch needs: {error!r}") from error


async def plan_pull_request(
    tx: Transaction, settings: Settings, guid: str, body: dict[str, Any], commit: Commit | None
) -> None:
    """Record a dispatch per backend of the allowlist for an event of a watched repository's pull request.

    `commit` is what is known of its head, None where every backend runs it.
    Raises RetryLater while no allowlist is in force: the event is kept until there are backends to send it to.
    """
    if not settings.is_upstream(body["repository"]["full_name"]):
        return
    allowlist = await _allowlist(tx)
    event = PullEvent.read(guid, body)
    repo, number = event.repo, event.number
    await dispatches.lock_pull(tx, repo, number)
    record = await record_store.read_pull(tx, repo, number)
    now = _head_and_base_now(record, event)
    await dispatches.supersede_unsent(tx, repo, number, but_head=now[0] if now else None)
    # also a closing that is over, which would make backends cancel what runs
    outdated = now != (None if event.action == "closed" else (event.head_sha, event.columns["base_ref"]))
    trusted = await redispatch.is_trusted(tx, repo, number, event.head_sha, event.author_association)
    chooser = await make_chooser(tx, settings, allowlist, repo, commit)
    done = await _already_dispatched(tx, event, allowlist)
    recorded = 0
    for entry in allowlist.for_event("pull_request"):
        if entry.key not in done and entry.wants_action(event.action, settings.pull_actions):
            held = entry.policy == "trusted" and not trusted
            columns = await _columns(tx, event, entry, held=held)
            state = _state(event, held=held, outdated=outdated)
            choice = chooser.choose(entry, state)
            if columns and await _record(tx, columns, entry, choice):
                recorded += 1
    for decider in {number, *await _gate_deciders(tx, repo, number, record)}:
        request_publish(tx, repo, decider)
    log.info(
        "dispatches recorded",
        repo=repo,
        pull=number,
        action=event.action,
        backends=recorded,
        outdated=outdated,
    )


async def plan_push(
    tx: Transaction, settings: Settings, guid: str, body: dict[str, Any], commit: Commit | None
) -> None:
    """Record a dispatch per backend that wants pushes to this ref.

    Tags go only to backends whose `refs` name tags, deletions to those that want them. A deletion is dispatched as a
    closing: no answer is expected.
    """
    repo, ref, after = body["repository"]["full_name"], body["ref"], body["after"]
    if not settings.is_upstream(repo):
        return
    deleted = bool(body.get("deleted")) or after == NO_COMMIT
    allowlist = await _allowlist(tx)
    pull = None if deleted else await find_pull(tx, settings, guid, repo=repo, ref=ref, sha=after)
    columns: DispatchEvent = {
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": repo,
        "event_type": "push",
        "action": "closed" if deleted else None,
        "pr_number": pull["number"] if pull else None,
        "head_sha": None if deleted else after,
        "base_sha": None if body["before"] == NO_COMMIT else body["before"],
        "base_ref": pull["base_ref"] if pull else None,
        "ref": ref,
        "labels": [],
    }
    asked_for = deleted or pull is not None  # a ref that asks for a run of a pull request is one
    chooser = await make_chooser(tx, settings, allowlist, repo, None if asked_for else commit)
    recorded = 0
    for entry in allowlist.for_event("push", ref):
        if entry.deletions or not deleted:
            recorded += await _record(tx, columns, entry, chooser.choose(entry, "pending"))
    log.info("dispatches recorded", repo=repo, ref=ref, backends=recorded)


PLANNERS = {"pull_request": plan_pull_request, "push": plan_push}


async def _allowlist(tx: Transaction) -> Allowlist:
    allowlist = await allowlists.read_in_force(tx)
    if allowlist is None:
        raise RetryLater("no valid allowlist has been read yet", after=5)
    return allowlist


def _head_and_base_now(record: PullRow | None, event: PullEvent) -> tuple[str | None, str | None] | None:
    """Return the head and base branch of a pull request now, None if it is closed.

    Events can arrive late: a newer record decides.
    """
    if record is not None and _is_newer(record, event):
        return (record["head_sha"], record["base_ref"]) if record["state"] == "open" else None
    return None if event.action == "closed" else (event.head_sha, event.columns["base_ref"])


def _is_newer(record: PullRow, event: PullEvent) -> bool:
    """Whether a record is certainly newer than an event: within a second either may be, but `opened` comes first."""
    at, recorded_at = event.updated_at, record["updated_at"]
    if at is None or recorded_at is None:
        return False
    return recorded_at > at or (event.action == "opened" and recorded_at == at)


async def _already_dispatched(tx: Transaction, event: PullEvent, allowlist: Allowlist) -> set[str]:
    """Return the backends (case folded) that need not run again for an event.

    If the event brought no commit or arrived late, these are the backends whose last dispatch of this commit for this
    base branch counts: closing and reopening would otherwise run them again and again. The end of a draft is
    dispatched once all the same: some run nothing before it.
    """
    action = event.action
    if action == "closed":
        return set()
    rows = await dispatches.read_dispatches_of_pull(tx, event.repo, event.number, heads={event.head_sha})
    rows = [row for row in of_own_events(rows) if row["base_ref"] == event.columns["base_ref"]]
    late = await _is_late(tx, rows, event)
    if not late and action not in SAME_COMMIT:
        return set()
    same_action = Counter(row["backend_key"] for row in rows if row["action"] == action)
    facts = await read_facts(tx, list(newest_by_backend(rows).values()))
    dispatched = set()
    for known in facts.values():
        key = known.dispatch["backend_key"]
        state = state_of(known, allowlist.find(key), now=tx.now)
        reopened = action == "reopened" and not late
        # closing makes a backend cancel its run, which it need not report
        may_be_cancelled = reopened and not state.finished and same_action[key] < MOST_REOPENED
        if state not in WORTHLESS and not may_be_cancelled:
            dispatched.add(key)
    return dispatched & set(same_action) if action == "ready_for_review" and not late else dispatched


async def _is_late(tx: Transaction, rows: Sequence[DispatchRow], event: PullEvent) -> bool:
    """Whether a later event, or a read from GitHub in place of this one, has dispatched the commit already."""
    at = event.updated_at
    if at is None:
        return False
    mine = event.columns["source_guid"]
    others = dict.fromkeys(row["source_guid"] for row in reversed(rows) if row["source_guid"] != mine)
    for guid in [*others][:MOST_EVENTS]:
        source = await inbox.find_delivery(tx, guid)
        other_at = _updated_at(decode(source["body"])) if source else None
        # GitHub's times are whole seconds: of two events in one second neither is known to be later
        if source and other_at and (other_at > at or (other_at == at and source["source"] == "api")):
            return True
    return False


def _updated_at(body: dict[str, Any]) -> int | None:
    updated_at: int | None = read_member(body, ("pull_request", "updated_at"), Kind.TIME)
    return updated_at


async def _columns(tx: Transaction, event: PullEvent, entry: Entry, *, held: bool) -> DispatchEvent | None:
    """Return the row of an event's dispatch to a backend; None where it gets none.

    If a closed pull request's newest commit is held back, or was not worth running there, its closing is about the last
    commit that was sent there: it repeats what the backend knows, and its callback token is valid for that commit
    only.
    """
    if event.action != "closed" or not (held or entry.selective):
        return event.columns
    last = await dispatches.last_sent(tx, event.repo, event.number, entry.key)
    if last is None:
        return None
    if not held and last["head_sha"] == event.head_sha:
        return event.columns
    return {
        **event.columns,
        "source_guid": last["source_guid"],
        "head_sha": last["head_sha"],
        "base_sha": last["base_sha"],
        "base_ref": last["base_ref"],
        "labels": last["labels"],
    }


def _state(event: PullEvent, *, held: bool, outdated: bool) -> str:
    """Return the state in which a dispatch is recorded."""
    if outdated:
        return "superseded"
    return "held" if held and event.action != "closed" else "pending"


async def _record(tx: Transaction, event: DispatchEvent, entry: Entry, choice: Choice) -> bool:
    """Record a dispatch and request its sending; returns False if it was recorded before."""
    row = new_dispatch(tx, event, backend_columns(entry, event["event_type"]), state=choice.state)
    row["error"] = choice.why
    added = await dispatches.add_dispatch(tx, row)
    if added and choice.state == "pending":
        tx.enqueue("dispatch", row["id"])
    return added


async def _gate_deciders(tx: Transaction, repo: str, number: int, record: PullRow | None) -> set[int]:
    """Return the other pull requests that publish the gates of this one's present and former heads."""
    if record is None:
        return set()
    deciders = await record_store.read_deciding_pulls(tx, repo, await record_store.read_heads(tx, record))
    return {first for first, *_ in deciders.values()} - {number}
