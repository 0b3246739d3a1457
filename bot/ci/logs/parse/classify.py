"""Which lines of a log say why its job failed?

One pass over the raw blocks finds which rules may match where (RE2 set); then only those rules are looked for, from the
end, in the few blocks that can decide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.ci.logs.parse.cleaning import clean_block
from bot.ci.logs.parse.matcher import ECHO, Matcher, compile_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.logs.findings import LineVerdict
    from bot.ci.logs.parse.blocks import Source
    from bot.ci.logs.parse.rules import Rule, Ruleset

RANKS = 5
CONTEXT = 12  # commands kept above a line
AROUND = 10  # lines of the excerpt above and below
LINE_MOST = 1000  # characters kept of a line or capture
CAPTURES_MOST = 20
EXCERPT_MOST = 8 * 1024  # bytes
EXAMINED_MOST = 10_000  # lines of the winning rule that are searched for further captures
KEPT_BLOCKS = 4


class Classified(NamedTuple):
    """What the rules found in a log."""

    lines: int
    verdicts: list[LineVerdict]  # the likeliest first
    first_error: dict[str, Any] | None  # the earliest line that a rule for builds matches


class Hit(NamedTuple):
    """A line that a rule matches."""

    rule: Rule
    number: int  # of the line, from 1, in the raw log
    text: str
    captures: list[str]


class _Block(NamedTuple):
    first: int  # the number of its first line
    lines: int
    may_match: int


def classify(source: Source, ruleset: Ruleset) -> Classified:
    """Return the lines of a log that say why its job failed, the likeliest first."""
    return _Search(source, compile_rules(ruleset)).result()


def find_winner(source: Source, ruleset: Ruleset) -> Hit | None:
    """Return the line that says why the job failed."""
    return next(_Search(source, compile_rules(ruleset)).ranked(), None)


def last_hits(source: Source, ruleset: Ruleset) -> Iterator[tuple[Rule, Hit | None]]:
    """Yield every rule and the last line of a log that it matches."""
    search = _Search(source, compile_rules(ruleset))
    for index, rule in enumerate(ruleset.rules):
        yield rule, next(search.hits(index), None)


def captures_of(found: Any) -> list[str]:
    """Return what a match captured: its groups that took part, or all of it where the pattern has none."""
    groups = found.groups() or (found.group(),)
    kept = [group for group in groups if group is not None][:CAPTURES_MOST]
    return [_text(group) for group in kept]


class _Search:
    """One log under one ruleset."""

    def __init__(self, source: Source, rules: Matcher) -> None:
        self.source = source
        self.matcher = rules
        self.blocks: list[_Block] = []
        self.texts: dict[int, bytes] = {}  # cleaned, ignored lines emptied; the last ones used
        self.dropped: list[tuple[int, int]] = []  # first and last lines of what lies in sections, in order
        self._scan()

    def result(self) -> Classified:
        """Return all findings."""
        hits = list(islice(self.ranked(), RANKS))
        last = self.blocks[-1] if self.blocks else _Block(1, 0, 0)
        return Classified(
            lines=last.first + last.lines - 1,
            verdicts=[self._verdict(rank, hit) for rank, hit in enumerate(hits)],
            first_error=self._first_error(),
        )

    def hits(self, index: int) -> Iterator[Hit]:
        """Yield the lines that a rule matches, the last one first."""
        for number in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[number].may_match >> index & 1:
                text = self._text(number)
                for start, found in reversed(list(self.matcher.lines(index, text))):
                    yield self._hit(number, index, text, start, found)

    def _hit(self, number: int, index: int, text: bytes, start: int, found: Any) -> Hit:
        end = text.find(b"\n", found.end())
        line_num = self.blocks[number].first + text.count(b"\n", 0, start)
        line = _text(text[start : len(text) if end < 0 else end])
        return Hit(self.matcher.rules[index], line_num, line, captures_of(found))

    def ranked(self) -> Iterator[Hit]:
        """Yield the winner, its rule's other captures, then the last line of each further rule with new captures."""
        seen: set[tuple[str, ...]] = set()
        lines: set[int] = set()
        for index, rule in enumerate(self.matcher.rules):
            winner = not seen
            several = winner and self.matcher.pattern(index).groups > 0
            for hit in islice(self.hits(index), EXAMINED_MOST if several else 1):
                if tuple(hit.captures) in seen or (rule.kind == "generic" and hit.number in lines):
                    continue
                seen.add(tuple(hit.captures))
                lines.add(hit.number)
                yield hit

    def _first_error(self) -> dict[str, Any] | None:
        builds = [n for n, rule in enumerate(self.matcher.rules) if rule.kind == "build"]
        mask = sum(1 << index for index in builds)
        for number, block in enumerate(self.blocks):
            if not block.may_match & mask:
                continue
            text = self._text(number)
            firsts = [
                (n, next(self.matcher.lines(n, text), None)) for n in builds if block.may_match >> n & 1
            ]
            hits = [self._hit(number, n, text, *first) for n, first in firsts if first]
            if found := min(hits, key=lambda hit: hit.number, default=None):
                return _named(found)
        return None

    def _verdict(self, rank: int, hit: Hit) -> LineVerdict:
        first, excerpt = self._excerpt(hit.number)
        return {
            "rank": rank,
            "rule": hit.rule.name,
            "kind": hit.rule.kind,
            "line": hit.text,
            "line_num": hit.number,
            "captures": hit.captures,
            "context": list(islice(self._commands(hit.number), CONTEXT)),
            "excerpt": excerpt,
            "excerpt_from": first,
            "hint": hit.rule.hint,
        }

    def _commands(self, line_num: int) -> Iterator[str]:
        """Yield the commands that were printed up to a line, the nearest first."""
        for number in range(self._number(line_num), -1, -1):
            block = self.blocks[number]
            if block.may_match >> self.matcher.command & 1:
                lines = self._text(number).split(b"\n")[: line_num - block.first + 1]
                yield from (_text(line) for line in reversed(lines) if line.startswith(b"+"))

    def _excerpt(self, line_num: int) -> tuple[int, list[str]]:
        """Return the lines around one, and the number of the first; shorter on both sides where they are long."""
        first = max(line_num - AROUND, 1)
        numbers = range(self._number(first), self._number(line_num + AROUND) + 1)
        lines = [line for number in numbers for line in self._raw(number)]
        skipped = first - self.blocks[numbers[0]].first
        kept = [_text(line) for line in lines[skipped : skipped + line_num - first + 1 + AROUND]]
        middle = line_num - first
        while sum(len(line.encode()) + 1 for line in kept) > EXCERPT_MOST:
            if middle >= len(kept) - middle - 1:
                del kept[0]
                first, middle = first + 1, middle - 1
            else:
                del kept[-1]
        return first, kept

    def _raw(self, number: int) -> list[bytes]:
        lines = clean_block(self.source.block(number), first=number == 0).split(b"\n")
        return lines[: self.blocks[number].lines]

    def _number(self, line_num: int) -> int:
        """Return the block that a line lies in, the last one for a line behind the end."""
        return max(bisect_right(self.blocks, line_num, key=itemgetter(0)) - 1, 0)

    def _scan(self) -> None:
        """Look at every block once: which patterns may match, and where are the sections."""
        line, since = 1, dict[int, int]()  # section -> the line where it began
        marks = sum(1 << index for pair in self.matcher.sections for index in pair)
        for number, raw in enumerate(self.source):
            may_match = self.matcher.may_match(raw, first=number == 0)
            lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
            self.blocks.append(_Block(line, lines, may_match))
            if may_match & marks:
                text = clean_block(raw, first=number == 0)
                self._find_sections(line, self.matcher.without_ignored(text, may_match), may_match, since)
            line += lines
        if self.matcher.ruleset.compat:
            self.dropped += [(start, line) for section, start in since.items() if section != ECHO]
        self.dropped = _union(self.dropped)

    def _find_sections(self, first: int, text: bytes, may_match: int, since: dict[int, int]) -> None:
        for section, pair in enumerate(self.matcher.sections):
            marks = []
            for stops, index in enumerate(pair):
                line, at = first, 0
                for start, _ in self.matcher.lines(index, text) if may_match >> index & 1 else ():
                    line += text.count(b"\n", at, start)
                    at = start
                    marks.append((line, stops))
            for line, stops in sorted(marks):
                if stops and section in since and line > since[section]:
                    self.dropped.append((since.pop(section), line))
                elif not stops:
                    since.setdefault(section, line)

    def _text(self, number: int) -> bytes:
        """Return the cleaned lines of a block; those that no rule looks at are empty."""
        if number not in self.texts:
            block = self.blocks[number]
            text = clean_block(self.source.block(number), first=number == 0)
            text = self.matcher.without_ignored(text, block.may_match)
            at = bisect_left(self.dropped, block.first, key=itemgetter(1))
            if at < len(self.dropped) and self.dropped[at][0] < block.first + block.lines:
                text = self._without_sections(block, text, at)
            if len(self.texts) >= KEPT_BLOCKS:
                del self.texts[next(iter(self.texts))]
            self.texts[number] = text
        return self.texts[number]

    def _without_sections(self, block: _Block, text: bytes, at: int) -> bytes:
        lines = text.split(b"\n")
        while at < len(self.dropped) and self.dropped[at][0] < block.first + block.lines:
            low = max(self.dropped[at][0] - block.first, 0)
            high = min(self.dropped[at][1] - block.first + 1, block.lines)
            lines[low:high] = [b""] * (high - low)
            at += 1
        return b"\n".join(lines)


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of lines in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _named(hit: Hit) -> dict[str, Any]:
    return {"rule": hit.rule.name, "kind": hit.rule.kind, "line": hit.text, "line_num": hit.number}


def _text(value: bytes) -> str:
    return value[: LINE_MOST * 4].decode("utf-8", "replace")[:LINE_MOST]
