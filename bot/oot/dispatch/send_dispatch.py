"""The task `dispatch`: sends a recorded dispatch (key: its id) to its backend, with its `client_payload`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, NotInstalled, RetryLater
from bot.core.json_fields import decode, iso_time
from bot.db import installation
from bot.db.db_errors import retry_until_stored
from bot.github import responses
from bot.github.responses import MOVED, RUN_DETAILS
from bot.ingest import inbox
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch import machines
from bot.oot.reports import authorization, rows
from bot.oot.results import dispatches, jobs
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.allowlist.entry import Entry
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

SCHEMA_VERSION = 1
MOST_CHARACTERS = 65_535
LIST_CHARACTERS = 16_000  # of a list, when not everything fits
MOST_NAMED = 100  # cut fields that are named one by one
SHORT = 255  # characters of a text that is kept when nothing else helps; no ref is longer

Payload = dict[str, Any]  # of a webhook
Excess = Callable[[Payload], int]  # characters a payload has too many
Fields = dict[str, Any]  # fields that are kept, and those of their members
_USER: Fields = {"login": 1, "id": 1, "type": 1}
_REPO: Fields = {
    "id": 1, "name": 1, "full_name": 1, "private": 1, "fork": 1, "html_url": 1, "clone_url": 1, "default_branch": 1,
    "owner": _USER,
}  # fmt: skip
_SIDE: Fields = {"ref": 1, "sha": 1, "label": 1, "user": _USER, "repo": _REPO}
ESSENTIAL: Fields = {
    "action": 1, "number": 1, "before": 1, "after": 1, "ref": 1, "created": 1, "deleted": 1, "forced": 1, "compare": 1,
    "base_ref": 1, "pusher": {"name": 1, "email": 1}, "commits": {"id": 1, "message": 1},
    "repository": _REPO, "sender": _USER, "label": {"name": 1},
    "head_commit": {"id": 1, "message": 1, "timestamp": 1},
    "pull_request": {
        "id": 1, "number": 1, "title": 1, "body": 1, "state": 1, "draft": 1, "merged": 1, "merge_commit_sha": 1,
        "html_url": 1, "author_association": 1, "created_at": 1, "updated_at": 1, "commits": 1, "changed_files": 1,
        "user": _USER, "labels": {"name": 1}, "head": _SIDE, "base": _SIDE,
    },
}  # fmt: skip
_NAME: Fields = {"id": 1, "full_name": 1}
LEAST: Fields = {
    "action": 1, "number": 1, "ref": 1, "base_ref": 1, "before": 1, "after": 1, "deleted": 1, "repository": _NAME,
    "pusher": {"name": 1},
    "pull_request": {
        "number": 1, "draft": 1, "state": 1, "author_association": 1,
        "head": {"ref": 1, "sha": 1, "repo": _NAME}, "base": {"ref": 1, "sha": 1},
    },
}  # fmt: skip
ENDING = ("state", "merged", "merged_at", "merged_by", "closed_at", "updated_at")  # of a pull request
CUT_IN_ORDER = (
    ("pull_request", "body"),
    ("head_commit", "message"),
    ("", "commits"),
    ("pull_request", "labels"),
    ("pull_request", "title"),
)
log = structlog.get_logger("bot.oot.dispatch.send_dispatch")

BISECT = "bisect"  # the source of deliveries that have one commit run, and the member that says why
SENT_LATE = "superseded while it was being sent"
MOST_REFUSALS = 3  # of a kind that may pass
PERMISSIONS_KNOWN_AFTER = 6.0  # seconds, where propagation takes longer than bot.github.client allows for
MOST_DELAY = 600_000  # milliseconds from a dispatch to its run at GitHub


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A dispatch that reached its backend although the answer was lost."""

    run_id: str | None  # None: not certain which


def client_payload(
    *,
    event_type: str,
    delivery_id: str,
    payload: Payload,
    callback_url: str,
    callback_token: str,
    as_input: bool,
    further: Payload | None = None,
) -> Payload:
    """Return the `client_payload`; `payload.truncated` names what had to be cut, if anything.

    With `as_input` it becomes an input of a workflow_dispatch: JSON inside JSON is longer. `further` are members
    beside the usual ones, and never cut.
    """

    def wrap(inner: Payload) -> Payload:
        return {
            "event_type": event_type,
            "delivery_id": delivery_id,
            "schema_version": SCHEMA_VERSION,
            "payload": inner,
            "callback_url": callback_url,
            "callback_token": callback_token,
            **(further or {}),
        }

    def excess(inner: Payload) -> int:
        sent = wrap(inner)
        return payload_size(workflow_inputs(sent) if as_input else sent) - MOST_CHARACTERS

    return wrap(_fitted(payload, excess))


def closing_payload(sent: Payload, closed: Payload) -> Payload:
    """Return the closing webhook for a backend whose last dispatch was of an older commit, `sent`.

    It reveals nothing of a later commit: only how the pull request ended is new.
    """
    now = closed["pull_request"]
    pull = sent["pull_request"] | {name: now.get(name) for name in ENDING} | {"merge_commit_sha": None}
    kept = {name: sent[name] for name in closed if name in sent}
    return kept | {"action": closed["action"], "sender": closed.get("sender"), "pull_request": pull}


def workflow_inputs(client: Payload) -> Payload:
    """Return the inputs of a workflow_dispatch, which are strings: the client_payload as JSON."""
    return {"client_payload": json.dumps(client, ensure_ascii=False, separators=(",", ":"))}


def payload_size(value: Payload) -> int:
    """Return the length of a value as sent: JSON with everything but ASCII escaped."""
    return len(json.dumps(value))


def describe_refusal(status: int, message: str) -> tuple[str, str]:
    """Return the state and the reason of a dispatch that GitHub refused."""
    text = message.lower()
    if status in MOVED:
        return "failed", "the repository was renamed or moved: write its present name into the allowlist"
    if "archived" in text:
        return "failed", "the repository is archived"
    if "suspended" in text:
        return "not_installed", "the App is suspended there"
    if status == 404:
        return "not_installed", "the repository is not there, or the App may not dispatch to it"
    if status == 403:
        return "not_installed", f"the App lacks a permission there: {message}"
    return "failed", f"GitHub answered {status}: {message}"


def permission_may_be_unknown(status: int, message: str) -> bool:
    """Return whether some of GitHub's servers may not know a fresh token's permissions yet."""
    return status == 403 and not responses.is_closed(message)


async def send_dispatch(context: Context, task: Task) -> None:
    """Send the dispatch unless it was sent or superseded, or is known to have arrived."""
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, task.key)
        allowlist = await allowlists.read_in_force(tx)
    if dispatch is None:
        raise GiveUp(f"dispatch {task.key} is not stored any more")
    if dispatch["state"] != "pending":
        return
    entry = allowlist.find(dispatch["backend"]) if allowlist else None
    if entry is None:
        reason = "it was taken off the allowlist before this was sent"
        await _settle(context, dispatch, state="failed", error=reason)
        return
    refused = {"dispatched_at": dispatch["dispatched_at"]}  # what was refused was not sent
    try:
        await _try(context, dispatch, entry)
    except NotInstalled as error:
        await _settle(context, dispatch, state="not_installed", error=error.message, **refused)
    except GitHubRefused as error:
        state, reason = describe_refusal(error.status, error.message)
        attempts = dispatch["attempts"] + 1
        if permission_may_be_unknown(error.status, error.message) and attempts < MOST_REFUSALS:
            async with context.store.transaction() as tx:
                await dispatches.change_dispatch(tx, dispatch["id"], attempts=attempts, **refused)
            raise RetryLater(reason, after=PERMISSIONS_KNOWN_AFTER) from error
        await _settle(context, dispatch, state=state, error=reason, **refused)
    except GiveUp as error:
        await _settle(context, dispatch, state="failed", error=str(error), **refused)


async def read_repository(client: Client, entry: Entry) -> dict[str, Any]:
    """Return the repository, where it is needed; raises GiveUp if it is not the one the allowlist pins."""
    if entry.dispatch != "workflow" and entry.repository_id is None:
        return {}
    repository: dict[str, Any] = await client.repository()
    if entry.repository_id not in {None, repository["id"]}:
        raise GiveUp(
            f"{entry.repo} is repository {repository['id']} now: "
            f"the allowlist pins repository_id {entry.repository_id}"
        )
    return repository


async def post_dispatch(
    client: Client, entry: Entry, event_type: str, payload: dict[str, Any], repository: dict[str, Any]
) -> str | None:
    """Make the call; returns the id of the run it started, where GitHub names it."""
    if entry.dispatch == "repository":
        body = {"event_type": event_type, "client_payload": payload}
        await client.post(client.path("dispatches"), data=body)
        return None
    branch = repository["default_branch"]
    request = {"ref": branch, "inputs": workflow_inputs(payload)}
    if not client.lacks(RUN_DETAILS):  # a server refuses what it does not know
        request["return_run_details"] = True
    url = client.path("actions/workflows/{file}/dispatches")
    try:
        answer = await client.post(url, {"file": entry.workflow_file}, data=request)
    except GitHubRefused as error:
        if error.gone:
            raise GiveUp(f"there is no workflow {entry.workflow_file} on {branch}") from error
        raise
    return str(answer["workflow_run_id"]) if isinstance(answer, dict) else None


def _fitted(payload: Payload, excess: Excess) -> Payload:
    """Return the payload, or as much of it as fits, cutting the least important first."""
    if excess(payload) <= 0:
        return payload
    cut: list[str] = []
    inner = _select(payload, ESSENTIAL, "", cut)
    _shorten_titles(inner, cut)
    cut = list(dict.fromkeys(cut))  # a list's items have lost the same fields
    inner["truncated"] = (
        cut if len(cut) <= MOST_NAMED else [*cut[:MOST_NAMED], f"and {len(cut) - MOST_NAMED} more"]
    )
    _shorten(inner, "pull_request", "labels", _labels_excess)
    for outer, name in CUT_IN_ORDER:
        _shorten(inner, outer, name, excess)
    if excess(inner) > 0:
        inner = _select(payload, LEAST, "", [], most=SHORT) | {"truncated": ["*"]}
    return inner


def _select(value: Payload, fields: Fields, path: str, cut: list[str], *, most: int | None = None) -> Payload:
    """Return the wanted fields; with `most`, only scalar values and texts up to that length."""
    kept: Payload = {}
    for name, inner in value.items():
        wanted = fields.get(name)
        if isinstance(wanted, dict) and isinstance(inner, dict):
            kept[name] = _select(inner, wanted, f"{path}{name}.", cut, most=most)
        elif isinstance(wanted, dict) and isinstance(inner, list) and most is None:
            items = [item for item in inner if isinstance(item, dict)]
            kept[name] = [_select(item, wanted, f"{path}{name}[].", cut) for item in items]
            if len(items) < len(inner):
                cut.append(f"{path}{name}[]")
        elif wanted is None or (most is not None and not _small(inner, most)):
            cut.append(path + name)
        else:
            kept[name] = inner
    return kept


def _small(value: object, most: int) -> bool:
    return len(value) <= most if isinstance(value, str) else not isinstance(value, (dict, list))


def _shorten(inner: Payload, outer: str, name: str, excess: Excess) -> None:
    """Cut a text or list to the longest prefix that fits."""
    holder = inner.get(outer) if outer else inner
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(value, (str, list)) or excess(inner) <= 0:
        return
    field = f"{outer}.{name}" if outer else name
    if field not in inner["truncated"]:
        inner["truncated"].append(field)
    fits, fails = 0, len(value)
    while fits + 1 < fails:
        middle = (fits + fails) // 2
        holder[name] = value[:middle]
        fits, fails = (middle, fails) if excess(inner) <= 0 else (fits, middle)
    holder[name] = value[:fits]


def _shorten_titles(inner: Payload, cut: list[str]) -> None:
    """Reduce each pushed commit's message to its title."""
    commits = inner.get("commits")
    for commit in commits if isinstance(commits, list) else ():
        message = commit.get("message")
        title = message.partition("\n")[0][:SHORT] if isinstance(message, str) else None
        if title != message:
            commit["message"] = title
            cut.append("commits[].message")


def _labels_excess(inner: Payload) -> int:
    return len(json.dumps(inner["pull_request"]["labels"])) - LIST_CHARACTERS


async def _try(context: Context, dispatch: DispatchRow, entry: Entry) -> None:
    """Send it once; raises GiveUp or GitHubRefused if it can never be sent, RetryLater if it may be later."""
    timeout = entry.start_timeout or context.settings.start_timeout
    if context.clock.now() - dispatch["created_at"] > timeout * 1000 + machines.longest_wait(entry):
        raise GiveUp("GitHub did not take it in time")
    if arrival := await _find_arrival(context, dispatch, entry):
        await _settle(context, dispatch, state="sent", run_id=arrival.run_id)
        return
    needs = {"actions" if entry.dispatch == "workflow" else "contents": "write"}
    client = context.backend_github.client(dispatch["backend"], since=None, **needs)
    # everything slow comes before the intent is recorded
    await context.backend_github.tokens.get(dispatch["backend"], needs)
    repository = await read_repository(client, entry)

    async def begin(tx: Transaction) -> tuple[dict[str, Any], int] | None:
        if await machines.hold_back(tx, dispatch, entry) or not await dispatches.begin_attempt(tx, dispatch):
            return None
        return await _payload(tx, context, dispatch, entry), tx.now

    if (begun := await context.store.write(begin)) is None:
        return
    payload, began_at = begun
    try:
        run_id = await post_dispatch(client, entry, dispatch["event_type"], payload, repository)
    except RetryLater as error:
        if error.after is not None:  # GitHub asked us to wait: this attempt has done nothing
            async with context.store.transaction() as tx:
                await dispatches.change_dispatch(tx, dispatch["id"], dispatched_at=dispatch["dispatched_at"])
        raise
    log.info("dispatched", backend=dispatch["backend"], delivery_id=dispatch["delivery_id"], run=run_id)
    await _settle(context, dispatch, state="sent", run_id=run_id, dispatched_at=began_at)


async def _find_arrival(context: Context, dispatch: DispatchRow, entry: Entry) -> Arrival | None:
    """Return whether an attempt whose answer was lost arrived, as shown by reports or by a run that must be its own."""
    since = dispatch["dispatched_at"]
    if since is None:
        return None  # no attempt yet
    async with context.store.read() as tx:
        if await jobs.has_reports(tx, dispatch["id"]):
            return Arrival(run_id=None)
        others = await dispatches.others_since(tx, dispatch, since - MOST_DELAY)
        if others or await rows.count_pings_since(tx, dispatch["backend"], since - MOST_DELAY):
            return None  # a run could be theirs, or that of a ping
    client = context.backend_github.client(dispatch["backend"], actions="read")
    query = {"event": f"{entry.dispatch}_dispatch", "created": f">={iso_time(since // 1000 * 1000)}"}
    try:
        app = await context.backend_github.as_app().getitem("/app")
        listed = await client.getitem(client.path("actions/runs{?event,created}"), query)
    except GitHubRefused:
        return None
    runs = [
        str(run["id"]) for run in listed["workflow_runs"] if _could_be_ours(run, dispatch, entry, app["slug"])
    ]
    async with context.store.read() as tx:
        taken = await dispatches.runs_of_others(tx, dispatch, runs)
    runs = [run for run in runs if run not in taken]
    if entry.dispatch == "workflow":  # reports have to be about this very run, so it must be certain
        return Arrival(run_id=runs[0]) if len(runs) == 1 else None
    return Arrival(run_id=None) if runs else None


def _could_be_ours(run: dict[str, Any], dispatch: DispatchRow, entry: Entry, slug: str) -> bool:
    """Whether a run of the entry's workflow was started by our App, or titled by GitHub after the dispatch."""
    if (run.get("actor") or {}).get("login", "").casefold() != f"{slug}[bot]".casefold():
        return False
    if entry.dispatch == "repository":
        return bool(run["display_title"] == dispatch["event_type"])
    file: str = run["path"].partition("@")[0].rpartition("/")[2]
    return file == entry.workflow_file


async def _payload(tx: Transaction, context: Context, dispatch: DispatchRow, entry: Entry) -> dict[str, Any]:
    source = await inbox.find_delivery(tx, dispatch["source_guid"])
    if source is None:
        raise GiveUp(f"the delivery {dispatch['source_guid']} to be dispatched is not stored any more")
    payload = decode(source["body"])
    # a delivery of our own making: GitHub's never have this source
    further = {"bisect": payload.pop("bisect")} if source["source"] == BISECT else {}
    if dispatch["action"] == "closed" and dispatch["delivery_id"] != dispatch["source_guid"]:
        # the commit at which it was closed is held back
        if (closed := await inbox.find_delivery(tx, dispatch["delivery_id"])) is None:
            raise GiveUp(f"the delivery {dispatch['delivery_id']} is not stored any more")
        payload = closing_payload(payload, decode(closed["body"]))
    return client_payload(
        event_type=dispatch["event_type"],
        delivery_id=dispatch["delivery_id"],
        payload=payload,
        callback_url=f"{context.settings.url}/api/oot/callback",
        callback_token=authorization.make_token(dispatch, await installation.random_key(tx, "callback")),
        as_input=entry.dispatch == "workflow",
        further=further,
    )


async def _settle(
    context: Context, dispatch: DispatchRow, *, state: str, error: str | None = None, **columns: Any
) -> None:
    """Record the outcome of a dispatch and request an update of its pull request.

    It waits for a database that is briefly unavailable: losing an outcome would mean sending twice.
    """
    if error:
        log.warning("not dispatched", backend=dispatch["backend"], state=state, reason=error)
    outcome = partial(_store, dispatch, state, error, columns)
    if await retry_until_stored(context.clock, partial(context.store.write, outcome)):
        log.warning("dispatched although it was superseded meanwhile", backend=dispatch["backend"])


async def _store(
    dispatch: DispatchRow, state: str, error: str | None, columns: dict[str, Any], tx: Transaction
) -> bool:
    """Store an outcome; returns whether a superseded dispatch was sent: its reports count, so this is shown."""
    settled = await dispatches.settle_dispatch(tx, dispatch["id"], state=state, error=error, **columns)
    now = None if settled else await dispatches.get_dispatch(tx, dispatch["id"])
    late = now is not None and state == "sent" != now["state"]
    if late:
        await dispatches.change_dispatch(tx, dispatch["id"], error=SENT_LATE, **columns)
    request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return late
