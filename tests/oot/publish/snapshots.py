"""Snapshots of texts; UPDATE_SNAPSHOTS=1 rewrites them."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def snapshot(name: str, text: str) -> str:
    """Return the text kept under `name`, rewritten first if the environment asks for it."""
    file = FOLDER / f"{name}.md"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")
