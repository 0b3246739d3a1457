"""The parser of td_exclusions*.json, in the parser child: which files of tests a job left out on purpose.

PyTorch's target determination writes `{"excluded": [{"test_file": "test_ops"}], ...}`; all else in it is ignored.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from bot.ci.collect.parse import zip_members
from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.test_results.parse.names import without_ending
from bot.ci.test_results.parse.parsed import EXCLUSIONS, LeftOut

if TYPE_CHECKING:
    from bot.ci.collect.parse.contract import Given
    from bot.ci.collect.parse.zip_members import Member

FILES_MOST = 5_000  # of a job
BYTES_MOST = 8 * 1024 * 1024  # of one document


class _File(msgspec.Struct):
    test_file: str


class _Document(msgspec.Struct):
    excluded: list[_File] = []


_DECODER = msgspec.json.Decoder(_Document)


def parse_exclusions(given: Given) -> LeftOut:
    """Return the files that all documents of an archive name; raises Broken where one cannot be read."""
    found: set[str] = set()
    with zip_members.open_archive(given.path) as archive:
        for member in zip_members.readable_members(archive):
            if any(fnmatchcase(member.name, pattern) for pattern in EXCLUSIONS):
                found |= {without_ending(one.test_file) for one in _read(member).excluded}
    found.discard("")
    if len(found) > FILES_MOST:
        raise Refused(f"over {FILES_MOST:,} files left out")
    return LeftOut(files=sorted(found))


def _read(member: Member) -> _Document:
    content = b""
    for piece in member.pieces():
        content += piece
        if len(content) > BYTES_MOST:
            raise Refused(f"{member.name[:100]}: over {BYTES_MOST >> 20} MiB")
    try:
        return _DECODER.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"{member.name[:100]}: {error}"[:300]) from None
