"""What is read from a downloaded log, in the parser child: it is masked, measured, compressed and classified."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.ci.logs.blocks import LINE_MOST, PlainLog
from bot.ci.logs.classify import Verdict, classify
from bot.ci.logs.cleaning import time_of
from bot.ci.logs.masking import Masking
from bot.ci.logs.parsed import Classified, Found, Options, ParsedLog
from bot.ci.logs.rules import Ruleset
from bot.ci.logs.signature import signature, title
from bot.ci.logs.steps import step_of
from bot.ci.logs.stored import StoredLog, Writer

if TYPE_CHECKING:
    from bot.ci.collect.parse.contract import Given
    from bot.ci.logs.parsed import FirstError

NONE = "none"  # the kind of a log in which no rule matches


def parse(given: Given) -> ParsedLog:
    """Store the log beside the answer, and return what was found."""
    options = msgspec.convert(given.options, Options)
    with given.path.open("rb") as file, given.blob.open("w+b") as blob:
        measured = _stored(file, blob)
        blob.flush()
        log = StoredLog(lambda start, length: _part(blob, start, length), blob.seek(0, 2))
        verdicts, first_error = found_in(log, options) if options.ruleset else ([], None)
    return ParsedLog(**measured, verdicts=verdicts, first_error=first_error)


def parse_stored(given: Given) -> Classified:
    """Classify a log that is stored already: the file is its blob."""
    options = msgspec.convert(given.options, Options)
    with given.path.open("rb") as blob:
        log = StoredLog(lambda start, length: _part(blob, start, length), blob.seek(0, 2))
        verdicts, first_error = found_in(log, options)
    return Classified(verdicts=verdicts, first_error=first_error)


def found_in(log: StoredLog, options: Options) -> tuple[list[Found], FirstError | None]:
    """Return the verdicts on a stored log; one of kind `none` where no rule matches."""
    ruleset = options.ruleset or Ruleset()
    classified = classify(log, ruleset)
    digest = ruleset.digest
    verdicts = [_found(log, verdict, digest, options) for verdict in classified.verdicts]
    return verdicts or [Found(rank=0, ruleset=digest, rule=None, kind=NONE)], classified.first_error


def _found(log: StoredLog, verdict: Verdict, digest: str, options: Options) -> Found:
    return Found(
        rank=verdict.rank,
        ruleset=digest,
        rule=verdict.rule,
        kind=verdict.kind,
        line=verdict.line,
        line_num=verdict.line_num,
        captures=verdict.captures,
        context=verdict.context,
        excerpt=verdict.excerpt,
        excerpt_from=verdict.excerpt_from,
        step=step_of(options.steps, time_of(_line(log, verdict.line_num))),
        hint=verdict.hint,
        signature=signature(verdict.rule, verdict.captures),
        title=title(verdict.rule, verdict.captures),
    )


def _line(log: StoredLog, number: int) -> bytes:
    """Return a raw line."""
    (block,) = log.index.around(number, number)
    lines = log.block(block).split(b"\n")
    return lines[number - log.index.entries[block].first_line]


def _stored(file: IO[bytes], blob: IO[bytes]) -> dict[str, Any]:
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
