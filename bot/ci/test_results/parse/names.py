"""Where a test is: its file and suite, from what a report says of them."""

from __future__ import annotations

import re
from typing import NamedTuple

FILE_MOST = 500  # characters
_NO_MODULE = re.compile(r"[/:\\\s]")  # names of Go packages and Rust binaries have these


class Place(NamedTuple):
    """The file a test is defined in, its suite, and the file that launched it; empty where unknown."""

    file: str
    suite: str
    invoking_file: str = ""


def place(file: str, classname: str, *, pytest: bool) -> Place:
    """Return the place of a case; a file that the report names always wins."""
    if file or "." not in classname or _NO_MODULE.search(classname):
        return Place(file, classname)
    parts = classname.split(".")
    if not all(parts):
        return Place(file, classname)
    if parts[0] == "test" and len(parts) > 1:
        parts = parts[1:]
    first_class = next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts))
    if pytest and first_class > 0:
        return Place("/".join(parts[:first_class]) + ".py", ".".join(parts[first_class:]))
    if len(parts) == 1:
        return Place(file, parts[0])
    return Place("/".join(parts[:-1]) + ".py", parts[-1])


def without_ending(file: str) -> str:
    """Return a file of tests as exclusions and launchers name it."""
    return file[:FILE_MOST].replace("\0", "").removeprefix("test/").removesuffix(".py")


def invoking_file(path: str) -> str:
    """Return which file launched the tests of a report, from the folder it lies in below `test-reports`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    if "test-reports" not in folders[:-1]:
        return ""
    return folders[-1].replace(".", "/")
