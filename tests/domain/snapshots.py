"""Does a text still read as in its snapshot? UPDATE_SNAPSHOTS=1 writes what it reads now."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def snapshot(name: str, text: str) -> str:
    """Return the text kept under `name`, first written anew if the environment asks for it."""
    file = FOLDER / f"{name}.md"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")
