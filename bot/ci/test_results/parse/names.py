"""Where a test is: its file and suite, from what a report says of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from bot.ci.test_results.parse.texts import short_name

FILE_MOST = 500  # characters
# names of files, which some producers write as class names
_SOURCE = re.compile(
    r"[^\s]\.(?:[cm]?[jt]sx?|c|cc|cpp|cxx|h|hpp|cs|dart|exs?|feature|go|groovy|java|kts?|lua|php|py|rb|rs|bats|sh|swift|vue)$"
)
_TEST_MODULE = re.compile(r"test_\w+|\w+_test")
_NO_MODULE = re.compile(r"[/:\\\s]")  # names of Go packages and Rust binaries have these


class Place(NamedTuple):
    """The file a test is defined in, its suite, and the file that launched it; empty where unknown."""

    file: str
    suite: str
    invoking_file: str = ""


def place(file: str, classname: str, *, pytest: bool) -> Place:
    """Return the place of a case; a file that the report names always wins, and none is made up.

    A class is one in a file of Python only where pytest says so, or where its module is called as tests are.
    """
    if file:
        return Place(short_name(file), short_name(classname))
    if _SOURCE.search(classname) and not pytest:
        return Place(short_name(classname), "")
    parts = classname.split(".")
    if "." not in classname or _NO_MODULE.search(classname) or not all(parts):
        return Place("", short_name(classname))
    if parts[0] == "test":
        parts = parts[1:]
    first_class = next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts))
    if pytest and first_class > 0:
        return _in_python(parts[:first_class], parts[first_class:])
    if len(parts) > 1 and _TEST_MODULE.fullmatch(parts[-2]):
        return _in_python(parts[:-1], parts[-1:])
    return Place("", short_name(parts[0] if len(parts) == 1 else classname))


def _in_python(modules: list[str], classes: list[str]) -> Place:
    return Place(short_name("/".join(modules) + ".py"), short_name(".".join(classes)))


def without_ending(file: str) -> str:
    """Return a file of tests as exclusions and launchers name it."""
    return file[:FILE_MOST].replace("\0", "").removeprefix("test/").removesuffix(".py")


def invoking_file(path: str) -> str:
    """Return which file launched the tests of a report, from the folder it lies in below `test-reports`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    if "test-reports" not in folders[:-1]:
        return ""
    return short_name(folders[-1].replace(".", "/"))
