"""Is there enough space left on the disk of DATA_DIR? Deliveries are refused once it is full."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

GB = 1024**3
LITTLE, TOO_LITTLE = 2 * GB, GB // 4  # bytes free


class Shortage(NamedTuple):
    """How little space is left."""

    words: str
    severe: bool  # the next deliveries may be refused


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on a folder's disk, which may not be there yet; None where nothing can be read."""
    try:
        there = next(each for each in (folder, *folder.resolve().parents) if each.exists())
        return shutil.disk_usage(there).free
    except OSError:
        return None


def find_shortage(folder: Path) -> Shortage | None:
    """Return what to tell the administrator, None while there is enough space."""
    free = free_bytes(folder)
    if free is None or free >= LITTLE:
        return None
    words = f"{free / GB:.1f} GB are free on the disk of DATA_DIR"
    if free < TOO_LITTLE:
        return Shortage(f"{words}: free space now, deliveries are refused when it is full", severe=True)
    return Shortage(f"{words}: nothing more of CI is collected until there are 2 GB", severe=False)
