"""What lies in a directory that a sink writes to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path


def archive_of(folder: Path, **options) -> dict:
    """The table of an archive of deliveries."""
    return {"kind": "objects", "url": f"file://{folder}/archive", "what": ["deliveries"]} | options


def copies_of(folder: Path, *what: str, **options) -> dict:
    """The table of a sink with upstream's keys."""
    chosen = list(what) or ["records", "deliveries", "oot_workflow_job"]
    return {
        "kind": "objects",
        "url": f"file://{folder}/copies",
        "layout": "upstream",
        "what": chosen,
    } | options


def files(folder: Path) -> dict[str, bytes]:
    """The content of all files, by key, as it was before it was compressed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            key = str(path.relative_to(folder))
            found[key] = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return found


def lines(content: bytes) -> list[dict]:
    """The objects of lines of JSON."""
    return [json.loads(line) for line in content.splitlines()]
