"""The `client_payload` that is sent to a backend, cut to what GitHub accepts where the webhook is too large.

GitHub allows at most 10 members and 65,535 characters; a long description must not keep a pull request from every
backend. Sizes are those of the JSON that is sent, everything but ASCII escaped: GitHub may count less, never more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bot.github import responses
from bot.github.responses import MOVED

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

    With `as_input` it will be one input of a workflow_dispatch: JSON inside JSON is longer. `further` are members
    beside the usual ones, which are never cut.
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
        return size(inputs(sent) if as_input else sent) - MOST_CHARACTERS

    return wrap(_fitted(payload, excess))


def closing(sent: Payload, closed: Payload) -> Payload:
    """Return the webhook of a closing for a backend whose last dispatch was of an older commit, `sent`.

    Nothing in it tells of a later commit: only how the pull request ended is new.
    """
    now = closed["pull_request"]
    pull = sent["pull_request"] | {name: now.get(name) for name in ENDING} | {"merge_commit_sha": None}
    kept = {name: sent[name] for name in closed if name in sent}
    return kept | {"action": closed["action"], "sender": closed.get("sender"), "pull_request": pull}


def inputs(client: Payload) -> Payload:
    """Return the inputs of a workflow_dispatch, which are strings: the client_payload as JSON."""
    return {"client_payload": json.dumps(client, ensure_ascii=False, separators=(",", ":"))}


def size(value: Payload) -> int:
    """Return the length of a value as it is sent: JSON with everything but ASCII escaped."""
    return len(json.dumps(value))


def refusal(status: int, message: str) -> tuple[str, str]:
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
    """Return whether not all of GitHub's servers may know a fresh token's permissions, which spread after the token."""
    return status == 403 and not responses.is_closed(message)


def _fitted(payload: Payload, excess: Excess) -> Payload:
    """Return the payload, or as much of it as fits; the least important is cut first."""
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
    """Return the wanted fields; with `most`, only scalar values, and texts no longer than that."""
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
    """Cut a text or list to the longest prefix without excess."""
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
    """Leave of each pushed commit's message its title."""
    commits = inner.get("commits")
    for commit in commits if isinstance(commits, list) else ():
        message = commit.get("message")
        title = message.partition("\n")[0][:SHORT] if isinstance(message, str) else None
        if title != message:
            commit["message"] = title
            cut.append("commits[].message")


def _labels_excess(inner: Payload) -> int:
    return len(json.dumps(inner["pull_request"]["labels"])) - LIST_CHARACTERS
