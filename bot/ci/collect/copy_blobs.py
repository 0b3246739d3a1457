"""Copying a folder of blobs while the bot uses it: each file as a whole, those that are there already not again."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.collect.blobs import TEMPORARY
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from pathlib import Path

FILES = "??/??/*"


@dataclass(kw_only=True)
class Copied:
    """What was copied."""

    files: int = 0
    bytes: int = 0
    there: int = 0  # files that were there already


def copy_blobs(source: Path, target: Path) -> Copied:
    """Copy blobs to a folder that only its owner may read; nothing is deleted there. Raises GiveUp.

    A blob that is deleted meanwhile is left out: its row says that it is gone.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise GiveUp(f"{target} lies in {source}, which is to be copied: choose another folder")
    found = Copied()
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in sorted(source.glob(FILES)):
        if not path.name.startswith(TEMPORARY):
            _copy_file(path, target / path.relative_to(source), found)
    return found


def _copy_file(path: Path, to: Path, found: Copied) -> None:
    part = to.with_name(TEMPORARY + secrets.token_hex(8))
    try:
        known = path.stat()
        if to.exists() and _same(known, to.stat()):
            found.there += 1
            return
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy2(path, part)  # its time tells how old a log is
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(to)
    except FileNotFoundError:
        return
    finally:
        part.unlink(missing_ok=True)
    found.files += 1
    found.bytes += known.st_size


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
