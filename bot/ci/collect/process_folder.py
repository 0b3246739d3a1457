"""Temporary files of one process: in a folder that it holds a lock on, so that others can tell once it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "lock"  # the file in a process's folder that is locked
NEW = "new-"  # begins the name of a folder that has no lock yet
STALE = 3600  # seconds after which a folder without a lock is left from a crash


class ProcessFolder:
    """A folder for this process, beside those of others."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._making = threading.Lock()
        self._own: Path | None = None
        self._lock: int | None = None  # a descriptor

    def make(self) -> Path:
        """Return a new folder of ours."""
        with self._making:
            own = self._own or self._make_own()
        made = own / secrets.token_hex(8)
        made.mkdir(mode=0o700)
        return made

    def delete_left(self) -> None:
        """Delete the folders of processes that are gone."""
        for path in self._others():
            if _is_left(path):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Delete our folder."""
        if self._own is not None and self._lock is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            os.close(self._lock)
            self._own = self._lock = None

    def _make_own(self) -> Path:
        name = secrets.token_hex(8)
        made = self._parent / f"{NEW}{name}"
        made.mkdir(parents=True, mode=0o700)
        self._lock = os.open(made / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # of a file system without locks: what is left there stays
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._own = made.rename(self._parent / name)
        self.delete_left()
        return self._own

    def _others(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from (path for path in self._parent.iterdir() if path != self._own)


def _is_left(path: Path) -> bool:
    """Whether no process has the folder any more."""
    try:
        if path.name.startswith(NEW) or not (path / LOCK).exists():
            return path.stat().st_mtime < time.time() - STALE
        with (path / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or was deleted meanwhile
        return False
    return True
