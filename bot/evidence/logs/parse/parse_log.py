"""What the children do with a log: mask, measure, compress and classify a new one, search a stored one.

A search has a child of its own: the pattern comes from a stranger, and so does the log.
"""

from __future__ import annotations

import hashlib
import time
from typing import IO, TYPE_CHECKING, Any

import msgspec
import re2

from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.logs.parse import rulesets
from bot.evidence.logs.parse.classify import RANKS, classify, judge_annotations
from bot.evidence.logs.parse.contract import (
    ParserOptions,
    SearchHit,
    SearchOptions,
    SearchResult,
    make_signature,
    make_title,
    step_at,
)
from bot.evidence.logs.parse.lines import BOM, Masking, clean_block, time_of, valid_utf8, without_escapes
from bot.evidence.logs.parse.rulesets import Ruleset
from bot.evidence.logs.parse.stored_log import LINE_MOST, DamagedLog, LogWriter, PlainLog, StoredLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.evidence.collect.parse.contract import ParserInput
    from bot.evidence.logs.tables import (
        LineVerdict,
        LogChanges,
        LogFindings,
        LogSize,
        LogTimes,
        ParsedLog,
        ParsedVerdict,
    )

    class Measures(LogSize, LogTimes, LogChanges):
        """What is measured while a log is written."""


NO_MATCH: LineVerdict = {
    "rank": 0,
    "rule": None,
    "kind": "none",
    "line": None,
    "line_num": None,
    "captures": [],
    "context": [],
    "excerpt": [],
    "excerpt_from": None,
    "hint": None,
}
HIT_LINE_MOST = 300  # characters of a line
PATTERN_MEMORY = 2 * 1024 * 1024  # of one compiled pattern
SEARCH_SECONDS = 2.0  # of processor time for one log


def parse_log(given: ParserInput) -> ParsedLog:
    """Store the log beside the answer, and return what was found."""
    options = msgspec.convert(given.options, ParserOptions)
    with given.path.open("rb") as file, given.blob.open("w+b") as blob:
        measures = _store_masked(file, blob)
        blob.flush()
        log = StoredLog(lambda start, length: _read_part(blob, start, length), blob.seek(0, 2))
        findings: LogFindings = {"verdicts": [], "first_error": None}
        if options.ruleset:
            findings = _classify_log(log, options)
    return {**measures, **findings}


def classify_stored(given: ParserInput) -> LogFindings:
    """Classify a stored log: the file is its blob."""
    options = msgspec.convert(given.options, ParserOptions)
    with given.path.open("rb") as blob:
        log = StoredLog(lambda start, length: _read_part(blob, start, length), blob.seek(0, 2))
        return _classify_log(log, options)


def _classify_log(log: StoredLog, options: ParserOptions) -> LogFindings:
    """Return the verdicts on a stored log, or one of kind `none` if no rule matches."""
    ruleset = options.ruleset or Ruleset()
    classification = classify(log, ruleset)
    verdicts: list[LineVerdict] = [{**verdict} for verdict in classification.verdicts]
    if noted := judge_annotations(options.annotations, ruleset, verdicts[0] if verdicts else None):
        verdicts = [noted, *verdicts][:RANKS]
    for rank, verdict in enumerate(verdicts):
        verdict["rank"] = rank
    parsed = [_parsed_verdict(log, verdict, ruleset.digest, options) for verdict in verdicts or [NO_MATCH]]
    return {"verdicts": parsed, "first_error": classification.first_error}


def _parsed_verdict(
    log: StoredLog, verdict: LineVerdict, ruleset: str, options: ParserOptions
) -> ParsedVerdict:
    rule, number, captures = verdict["rule"], verdict["line_num"], verdict["captures"]
    return {
        **verdict,
        "ruleset": ruleset,
        "step": step_at(options.steps, time_of(_raw_line(log, number))) if number else None,
        "signature": make_signature(rule, captures) if rule else None,
        "title": make_title(rule, captures) if rule else None,
    }


def _raw_line(log: StoredLog, number: int) -> bytes:
    """Return a raw line."""
    (block,) = log.index.around(number, number)
    lines = log.block(block).split(b"\n")
    return lines[number - log.index.entries[block].first_line]


def _store_masked(file: IO[bytes], blob: IO[bytes]) -> Measures:
    """Write a log in its stored form, and return its measures."""
    writer, masking, digest = LogWriter(blob), Masking(), hashlib.sha256()
    longest, truncated, first_at, last_at = 0, False, None, None
    for piece, raw in PlainLog(file).measured():
        block = masking.block(raw)
        writer.add(block)
        digest.update(block)
        if piece.cut:
            truncated, longest = True, max(longest, piece.size - raw.endswith(b"\n"))
        else:
            longest = max(longest, *map(len, raw.split(b"\n")))
        first_at = first_at or time_of(block[:64])
        last_at = time_of(block[block.rstrip(b"\n").rfind(b"\n") + 1 :][:64]) or last_at
    writer.finish()
    return {
        "bytes": writer.bytes,
        "lines": writer.lines,
        "longest_line": longest,
        "sha256": digest.hexdigest(),
        "first_at": first_at,
        "last_at": last_at,
        "truncated": truncated or longest > LINE_MOST,
        "secrets_masked": masking.masked,
    }


def _read_part(file: IO[bytes], start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def search_stored(given: ParserInput) -> SearchResult:
    """Return the first lines of a stored log that match."""
    options = msgspec.convert(given.options, SearchOptions)
    try:
        rulesets.check_pattern(options.pattern, memory=PATTERN_MEMORY)
        return _search_file(given, options)
    except rulesets.PatternError as error:
        raise Refused(str(error)) from None
    finally:
        re2.purge()  # it keeps what it has compiled


def _search_file(given: ParserInput, options: SearchOptions) -> SearchResult:
    began = time.process_time()
    hits: list[SearchHit] = []
    whole = True
    with given.path.open("rb") as file:
        try:
            for hit in _search_blocks(_open_stored(file), options.pattern):
                if hit is not None:
                    hits.append(hit)
                if len(hits) > options.most:
                    break
                if time.process_time() - began > SEARCH_SECONDS:
                    whole = False
                    break
        except DamagedLog as error:
            raise Broken(str(error)) from None
    return SearchResult(
        hits=hits[: options.most],
        more=len(hits) > options.most,
        whole=whole,
        seconds=time.process_time() - began,
    )


def _search_blocks(log: StoredLog, pattern: str) -> Iterator[SearchHit | None]:
    """Yield the lines that match, and None after each block.

    One pass over a raw block tells whether it has to be cleaned, which costs more than to search it.
    """
    wanted = rulesets.compile_pattern(pattern, memory=PATTERN_MEMORY)
    may_match = rulesets.make_pattern_set([pattern], raw=True, memory=PATTERN_MEMORY)
    for number, entry in enumerate(log.index.entries):
        raw = log.block(number)
        plain = raw.removeprefix(BOM) if number == 0 else raw
        if _may_match(may_match, without_escapes(valid_utf8(plain))):
            yield from _hits_in_block(wanted, clean_block(raw, first=number == 0), entry.first_line)
        yield None


def _may_match(may_match: Any, text: bytes) -> bool:
    """Whether the pattern may match: a set that ran out of memory matches nothing."""
    if may_match is None:
        return True
    matches = may_match.Match(text)
    return matches is None or 0 in matches


def _hits_in_block(wanted: Any, text: bytes, first: int) -> Iterator[SearchHit]:
    number, counted, at = first, 0, 0
    while match := wanted.search(text, at):
        start = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.end())
        end = len(text) if end < 0 else end
        number += text.count(b"\n", counted, start)
        counted, at = start, end + 1
        line = text[start:end][: HIT_LINE_MOST * 4].decode("utf-8", "replace")[:HIT_LINE_MOST]
        yield SearchHit(line_num=number, line=line)
        if at > len(text):
            return


def _open_stored(file: IO[bytes]) -> StoredLog:
    def read(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    return StoredLog(read, file.seek(0, 2))
