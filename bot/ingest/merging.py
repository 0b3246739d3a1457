"""Reading records from webhook bodies, and merging two versions of one object."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from bot.core.json_fields import Kind, Unreadable, read, require_int
from bot.ingest.records import RecordType, Rule

Values = dict[str, Any]  # of a record, by column: the record type says which
CREATING_ACTIONS = frozenset({"opened", "created", "submitted", "requested"})
# which of two actions within one second wins, weakest first: a new head or visibility; an end or a reopening;
# what was read from GitHub's API afterwards
WEIGHTS = (("synchronize", "privatized", "publicized"), ("closed", "reopened"), ("reconciled",))
DECISIVE_ACTIONS = {action: weight for weight, actions in enumerate(WEIGHTS, 2) for action in actions}
STATUS_RANK = {
    "requested": 0,
    "queued": 0,
    "pending": 0,
    "waiting": 1,
    "in_progress": 2,
    "completed": 3,
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row to be merged into its table, with the version that decides."""

    type: RecordType[Any]
    values: Values
    version: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The primary key."""
        return (self.values["repository_id"], *(self.values[name] for name in self.type.key))


def from_payload(
    kind: RecordType[Any], payload: dict[str, Any], *, guid: str, received_at: int, deleted: bool = False
) -> Record:
    """Read one record out of a webhook body; raises Unreadable when its key cannot be read."""
    source = payload if not kind.at else payload.get(kind.at)
    if not isinstance(source, dict):
        raise Unreadable(f"{kind.at} is not an object")
    repository = payload.get("repository")
    inside = repository if isinstance(repository, dict) else {}
    values: Values = {
        "repository_id": require_int(inside, "id", "repository.id") if inside else 0,
        "repo": read(inside, ("full_name",), Kind.TEXT) or "",
        "received_at": received_at,
        "deleted_at": received_at if deleted else None,
    }
    for column in kind.columns:
        values[column.name] = read(source, column.path, column.kind)
    if "guid" in kind.key:
        values["guid"] = guid
    for name in kind.key:
        if values[name] is None:
            raise Unreadable(f"{kind.at}.{name} is missing or of another kind")
    return Record(type=kind, values=values, version=version_of(kind, source, values, payload.get("action")))


def version_of(kind: RecordType[Any], source: Any, values: Values, action: object) -> str:
    """Return a text that is greater for the version that wins; equal only for equal objects."""
    digest = hashlib.sha256(msgspec.json.encode(source, order="deterministic")).hexdigest()
    rank = STATUS_RANK.get(values.get("status") or "", 0)
    if kind.rule is Rule.FURTHEST:
        return f"{rank}:{values.get('completed_at') or 0:015d}:{digest}"
    happened = action if isinstance(action, str) else ""
    later = 0 if happened in CREATING_ACTIONS else DECISIVE_ACTIONS.get(happened, 1)
    return f"{values.get('updated_at') or 0:015d}:{later}:{rank}:{digest}"


def merge(old: Values | None, new: Record) -> Values | None:
    """Return the row merged from two versions, or None when the old row does not change.

    `merge_state` holds the row's version under `v` and, for FURTHEST, under `older` the versions of the
    columns that come from an older version.
    """
    if old is None:
        return {**new.values, "merge_state": {"v": new.version}}
    if new.type.rule is Rule.HISTORY:
        return None
    row = _furthest(old, new) if new.type.rule is Rule.FURTHEST else _newest(old, new)
    row["received_at"] = min(old["received_at"], new.values["received_at"])
    row["deleted_at"] = _earliest(old["deleted_at"], new.values["deleted_at"])
    return row if row != old else None


def _newest(old: Values, new: Record) -> Values:
    if new.version <= old["merge_state"]["v"]:
        return dict(old)
    return {**old, **new.values, "merge_state": {"v": new.version}}


def _furthest(old: Values, new: Record) -> Values:
    top = max(old["merge_state"]["v"], new.version)
    older_versions: dict[str, str] = old["merge_state"].get("older", {})
    row, older = dict(old), {}
    for name in (*new.type.key, "repository_id", "repo", *new.type.names):
        value = new.values[name]
        was = older_versions.get(name, old["merge_state"]["v"])
        if value is not None and (old[name] is None or new.version > was):
            row[name], was = value, new.version
        if row[name] is not None and was != top:
            older[name] = was
    row["merge_state"] = {"v": top, "older": older} if older else {"v": top}
    return row


def _earliest(one: int | None, other: int | None) -> int | None:
    known = [at for at in (one, other) if at is not None]
    return min(known, default=None)
