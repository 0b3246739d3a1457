"""Which processes has a bot started?"""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes of ootbot that a process has started, by name: Linux's own list of them."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [child for child in map(int, found.split()) if name(child)]


def name(pid: int) -> str:
    """What a process of ootbot does, empty for others and for one that has ended."""
    try:
        shown = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
    if state == "Z":  # its parent has not waited for it yet
        return ""
    return shown.removeprefix("ootbot-") if shown.startswith("ootbot-") else ""


def named(pid: int) -> dict[str, int]:
    """The processes of ootbot that a process has started, by what they do."""
    return {name(child): child for child in children(pid)}
