"""What is read from a downloaded log, in the parser child: it is masked, measured, compressed and classified."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

import msgspec

from bot.ci.logs.parse.blocks import LINE_MOST, PlainLog
from bot.ci.logs.parse.classify import RANKS, classify, judge_annotations
from bot.ci.logs.parse.cleaning import time_of
from bot.ci.logs.parse.masking import Masking
from bot.ci.logs.parse.options import ParserOptions
from bot.ci.logs.parse.rules import Ruleset
from bot.ci.logs.parse.signature import signature, title
from bot.ci.logs.parse.steps import step_of
from bot.ci.logs.parse.stored import StoredLog, Writer

if TYPE_CHECKING:
    from bot.ci.collect.parse.contract import Given
    from bot.ci.logs.findings import Classified, LineVerdict, ParsedLog, ParsedVerdict
    from bot.ci.logs.tables import LogChanges, LogSize, LogTimes

    class Measures(LogSize, LogTimes, LogChanges):
        """What the writing of a log tells."""


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


def parse_log(given: Given) -> ParsedLog:
    """Store the log beside the answer, and return what was found."""
    options = msgspec.convert(given.options, ParserOptions)
    with given.path.open("rb") as file, given.blob.open("w+b") as blob:
        measures = _store(file, blob)
        blob.flush()
        log = StoredLog(lambda start, length: _part(blob, start, length), blob.seek(0, 2))
        found: Classified = {"verdicts": [], "first_error": None}
        if options.ruleset:
            found = _classified(log, options)
    return {**measures, **found}


def classify_stored(given: Given) -> Classified:
    """Classify a log that is stored already: the file is its blob."""
    options = msgspec.convert(given.options, ParserOptions)
    with given.path.open("rb") as blob:
        log = StoredLog(lambda start, length: _part(blob, start, length), blob.seek(0, 2))
        return _classified(log, options)


def _classified(log: StoredLog, options: ParserOptions) -> Classified:
    """Return the verdicts on a stored log; one of kind `none` where no rule matches."""
    ruleset = options.ruleset or Ruleset()
    found = classify(log, ruleset)
    verdicts: list[LineVerdict] = [{**verdict} for verdict in found.verdicts]
    if noted := judge_annotations(options.annotations, ruleset, verdicts[0] if verdicts else None):
        verdicts = [noted, *verdicts][:RANKS]
    for rank, verdict in enumerate(verdicts):
        verdict["rank"] = rank
    parsed = [_parsed(log, verdict, ruleset.digest, options) for verdict in verdicts or [NO_MATCH]]
    return {"verdicts": parsed, "first_error": found.first_error}


def _parsed(log: StoredLog, verdict: LineVerdict, ruleset: str, options: ParserOptions) -> ParsedVerdict:
    rule, number, captures = verdict["rule"], verdict["line_num"], verdict["captures"]
    return {
        **verdict,
        "ruleset": ruleset,
        "step": step_of(options.steps, time_of(_line(log, number))) if number else None,
        "signature": signature(rule, captures) if rule else None,
        "title": title(rule, captures) if rule else None,
    }


def _line(log: StoredLog, number: int) -> bytes:
    """Return a raw line."""
    (block,) = log.index.around(number, number)
    lines = log.block(block).split(b"\n")
    return lines[number - log.index.entries[block].first_line]


def _store(file: IO[bytes], blob: IO[bytes]) -> Measures:
    """Write a log in its stored form; returns its measures."""
    writer, masking, digest = Writer(blob), Masking(), hashlib.sha256()
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


def _part(file: IO[bytes], start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
