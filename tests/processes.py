"""Which processes has a bot started?"""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes of the family that a process has started, by name: Linux's own list of them."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [child for child in map(int, found.split()) if name(child)]


def name(pid: int) -> str:
    """What a process of the family does, empty for others."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[3].decode() if len(words) > 3 and words[2] == b"bot.console.member" else ""


def named(pid: int) -> dict[str, int]:
    """The processes of the family by what they do."""
    return {name(child): child for child in children(pid)}
