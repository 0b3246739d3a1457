"""Deliveries and records as objects: the archive, and the keys under which upstream's pipeline stores them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.stored_objects import Listed, StoredObject, json_line, object_key, repo_key
from bot.ingest.records import TYPES
from bot.ingest.source_rows import source_payload
from bot.ingest.tables import DeliveryEvent, DeliveryTime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.exports import Export, Row

ARCHIVE, MANIFESTS = "raw", "raw/manifest"
METADATA = frozenset({"event", "action", "repo", "sha256"})
LATEST_ONLY = frozenset({"workflow_job", "workflow_run"})  # events whose newest object has a key of its own
OURS = frozenset({"merge_state", "source"})  # columns that are no part of what GitHub says


class ManifestLine(DeliveryEvent, DeliveryTime):
    """What a manifest says of an archived delivery: all that its body does not."""

    key: str
    action: str | None
    repo: str | None
    sha256: str  # of the body


_LINE = msgspec.json.Decoder(ManifestLine)


def archive_delivery(_export: Export, row: Row) -> list[StoredObject]:
    """Return a delivery as the archive keeps it: its body byte by byte, in a folder by day and event."""
    body: bytes = row["body"]
    at = datetime.fromtimestamp(row["received_at"] / 1000, UTC)
    day = f"{at:%Y/%m/%d}"
    line: ManifestLine = {
        "key": f"{ARCHIVE}/{day}/{object_key(row['event'], row['guid'])}.json.gz",
        "guid": row["guid"],
        "event": row["event"],
        "action": row["action"],
        "repo": row["repo"],
        "received_at": row["received_at"],
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    metadata = {name: str(value or "") for name, value in line.items() if name in METADATA}
    return [
        StoredObject(
            key=line["key"],
            content=lambda: (body,),
            metadata=metadata | {"received-at": str(line["received_at"])},
            immutable=True,
            listed=Listed(manifest=f"{MANIFESTS}/{day}/{at:%H}", line=msgspec.json.encode(line)),
        )
    ]


def copy_delivery(_export: Export, row: Row) -> list[StoredObject]:
    """Return a delivery's body under upstream's key, with its GUID in place of a random one."""
    body: bytes = row["body"]
    prefix = "full_" if row["event"] in LATEST_ONLY else ""
    key = object_key(f"{prefix}{row['event']}", row["guid"])
    return [StoredObject(key=key, content=lambda: (body,), immutable=True)]


def copy_object(export: Export, row: Row) -> list[StoredObject]:
    """Return GitHub's newest object of a record; where its delivery is no longer kept, what the record has of it."""
    kind = TYPES[export.name]
    folders = [export.name, repo_key(row["repo"])] if row["repo"] else [export.name]
    names = (row[part] for part in kind.key if part != "run_attempt")  # of a run the newest attempt is sent
    key = "/".join((*folders, object_key(*names)))
    return [StoredObject(key=key, content=lambda: (json_line(newest_object(row, kind.at)),))]


def newest_object(row: Row, at: str) -> dict[str, Any]:
    """Return GitHub's object of a record, the member `at` of its delivery; else what the record has, and `_partial`."""
    payload = source_payload(row)
    found = payload.get(at) if at and payload else payload
    if isinstance(found, dict):
        return found
    return {name: value for name, value in row.items() if name not in OURS} | {"_partial": True}


def read_manifest(lines: Iterable[bytes]) -> list[ManifestLine]:
    """Return the lines of a part of a manifest; raises msgspec.DecodeError where it is damaged."""
    return [_LINE.decode(line) for line in lines if line.strip()]
