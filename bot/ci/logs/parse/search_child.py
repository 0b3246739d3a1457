"""Searching one stored log, in a child of its own: the pattern comes from a stranger, and so does the log."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING, Any

import msgspec
import re2

from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.logs.parse import patterns
from bot.ci.logs.parse.cleaning import BOM, clean_block, valid, without_escapes
from bot.ci.logs.parse.options import Searched, SearchHit, SearchOptions
from bot.ci.logs.parse.stored import Damaged, StoredLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.collect.parse.contract import Given

LINE_MOST = 300  # characters of a line
MEMORY = 2 * 1024 * 1024  # of one compiled pattern
SECONDS = 2.0  # of processor time for one log


def search_stored(given: Given) -> Searched:
    """Return the first lines of a stored log that match."""
    options = msgspec.convert(given.options, SearchOptions)
    try:
        patterns.check_pattern(options.pattern, memory=MEMORY)
        return _found(given, options)
    except patterns.PatternError as error:
        raise Refused(str(error)) from None
    finally:
        re2.purge()  # it keeps what it has compiled


def _found(given: Given, options: SearchOptions) -> Searched:
    began = time.process_time()
    hits: list[SearchHit] = []
    whole = True
    with given.path.open("rb") as file:
        try:
            for found in _search(_opened(file), options.pattern):
                if found is not None:
                    hits.append(found)
                if len(hits) > options.most:
                    break
                if time.process_time() - began > SECONDS:
                    whole = False
                    break
        except Damaged as error:
            raise Broken(str(error)) from None
    return Searched(
        hits=hits[: options.most],
        more=len(hits) > options.most,
        whole=whole,
        seconds=time.process_time() - began,
    )


def _search(log: StoredLog, pattern: str) -> Iterator[SearchHit | None]:
    """Yield the lines that match, and None after each block.

    One pass over a raw block tells whether it has to be cleaned, which costs more than to search it.
    """
    wanted = patterns.for_block(pattern, memory=MEMORY)
    may_match = patterns.make_set([pattern], raw=True, memory=MEMORY)
    for number, entry in enumerate(log.index.entries):
        raw = log.block(number)
        plain = raw.removeprefix(BOM) if number == 0 else raw
        if _possible(may_match, without_escapes(valid(plain))):
            yield from _lines(wanted, clean_block(raw, first=number == 0), entry.first_line)
        yield None


def _possible(may_match: Any, text: bytes) -> bool:
    """Whether the pattern may match; the set finds nothing at all where it has run out of memory."""
    if may_match is None:
        return True
    found = may_match.Match(text)
    return found is None or 0 in found


def _lines(wanted: Any, text: bytes, first: int) -> Iterator[SearchHit]:
    number, counted, at = first, 0, 0
    while found := wanted.search(text, at):
        start = text.rfind(b"\n", 0, found.start()) + 1
        end = text.find(b"\n", found.end())
        end = len(text) if end < 0 else end
        number += text.count(b"\n", counted, start)
        counted, at = start, end + 1
        line = text[start:end][: LINE_MOST * 4].decode("utf-8", "replace")[:LINE_MOST]
        yield SearchHit(line_num=number, line=line)
        if at > len(text):
            return


def _opened(file: IO[bytes]) -> StoredLog:
    def read(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    return StoredLog(read, file.seek(0, 2))
