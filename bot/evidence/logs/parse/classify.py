"""Which lines of a log say why its job failed?

One pass over the raw blocks finds which rules may match where (RE2 set); then only those rules are looked
for, from the end, in the few blocks that can decide. Fixtures of rulesets are fragments of logs that mark the
line to be found: it begins with `#=MATCH=# ` and has single angle quotes around what is captured; a fragment
without such a line expects no verdict. A first line `#=SOURCE=# address` says where the fragment is from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.core.errors import OotbotError
from bot.evidence.logs.parse import rulesets
from bot.evidence.logs.parse.lines import (
    clean_block,
    kept_spans,
    prefix_length,
    timestamp_length,
    valid_utf8,
    without_colours,
    without_prefixes,
    without_timestamps,
)
from bot.evidence.logs.parse.rulesets import ECHO, Matcher, Rule, compile_rules
from bot.evidence.logs.parse.stored_log import PlainLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.evidence.logs.parse.rulesets import Ruleset
    from bot.evidence.logs.parse.stored_log import LogSource
    from bot.evidence.logs.tables import LineVerdict

RANKS = 5
CONTEXT = 12  # commands kept above a line
AROUND = 10  # lines of the excerpt above and below
TEXT_MOST = 1000  # characters kept of a line or capture
CAPTURES_MOST = 20
EXCERPT_MOST = 8 * 1024  # bytes
EXAMINED_MOST = 10_000  # lines of the winning rule that are searched for further captures
KEPT_BLOCKS = 40  # cleaned: 10 MiB
NOTED = frozenset({"infra", "timeout", "cancel"})  # kinds that annotations are judged by
LOOKED_BACK = 20  # lines above the first error, of which the last one with text is the last resort
LAST_RESORT = Rule(name="Last line before the error", pattern=r"\S.*", kind="generic")
MATCH_MARK = b"#=MATCH=# "
SOURCE_MARK = b"#=SOURCE=# "
OPEN_MARK, CLOSE_MARK = "\u2039".encode(), "\u203a".encode()


class Classification(NamedTuple):
    """What the rules found in a log."""

    lines: int
    verdicts: list[LineVerdict]  # the likeliest first
    first_error: dict[str, Any] | None  # the earliest line that a rule for builds matches


class RuleHit(NamedTuple):
    """A line that a rule matches."""

    rule: Rule
    number: int  # of the line, from 1, in the raw log
    text: str
    captures: list[str]


class _Block(NamedTuple):
    first: int  # the number of its first line
    lines: int
    may_match: int


def classify(source: LogSource, ruleset: Ruleset) -> Classification:
    """Return the lines of a log that say why its job failed, the likeliest first."""
    return _Search(source, compile_rules(ruleset)).result()


def find_winner(source: LogSource, ruleset: Ruleset) -> RuleHit | None:
    """Return the line that says why the job failed."""
    return next(_Search(source, compile_rules(ruleset)).ranked(), None)


def judge_annotations(
    annotations: Sequence[str], ruleset: Ruleset, best: LineVerdict | None
) -> LineVerdict | None:
    """Return the verdict of GitHub's notes beside a job, where a rule for runners and times outranks the log."""
    for rule in ruleset.rules:
        if best and (rule.name, rule.kind) == (best["rule"], best["kind"]):
            return None
        if rule.kind in NOTED:
            for message in annotations:
                text = b"##[error]" + message.encode("utf-8", "replace")
                if match := rulesets.compile_pattern(rule.pattern).search(text):
                    return {
                        "rank": 0,
                        "rule": rule.name,
                        "kind": rule.kind,
                        "line": _text(text.removeprefix(b"##[error]")),
                        "line_num": None,
                        "captures": captures_of(match),
                        "context": [],
                        "excerpt": [],
                        "excerpt_from": None,
                        "hint": rule.hint,
                    }
    return None


def explain(source: LogSource, ruleset: Ruleset) -> tuple[Classification, list[RuleHit]]:
    """Classify a log, and return the last line that each rule matches, too; the log is read once."""
    search = _Search(source, compile_rules(ruleset))
    classification = search.result()
    last = [next(search.hits(index), None) for index in range(len(ruleset.rules))]
    return classification, [hit for hit in last if hit]


def captures_of(match: Any) -> list[str]:
    """Return what a match captured: the groups that took part, or the whole match without groups."""
    groups = match.groups() or (match.group(),)
    kept = [group for group in groups if group is not None][:CAPTURES_MOST]
    return [_text(group) for group in kept]


class _Search:
    """One log under one ruleset."""

    def __init__(self, source: LogSource, rules: Matcher) -> None:
        self.source = source
        self.matcher = rules
        self.blocks: list[_Block] = []
        self.cleaned: dict[int, bytes] = {}  # the last ones used
        self.texts: dict[int, bytes] = {}  # the same with ignored lines emptied
        self.refined: set[int] = set()  # blocks of which it is known what matches
        self.echoes: list[int] = []  # lines that only the echo of a step's script has
        self.dropped: list[tuple[int, int]] = []  # first and last lines of what lies in sections, in order
        self._scan()

    def result(self) -> Classification:
        """Return all findings."""
        hits = list(islice(self.ranked(), RANKS))
        last = self.blocks[-1] if self.blocks else _Block(1, 0, 0)
        return Classification(
            lines=last.first + last.lines - 1,
            verdicts=[self._verdict(rank, hit) for rank, hit in enumerate(hits)],
            first_error=self._first_error(),
        )

    def hits(self, index: int) -> Iterator[RuleHit]:
        """Yield the lines that a rule matches and that nothing later undoes, the last one first."""
        undone = self._undone(self.matcher.rules[index].unless)
        for number in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[number].may_match >> index & 1:
                text = self._text(number)
                for start, match in reversed(list(self.matcher.lines(index, text))):
                    hit = self._hit(number, index, text, start, match)
                    if hit.number < undone:
                        return
                    yield hit

    def _undone(self, unless: str) -> int:
        """Return the last line that a pattern matches, or 0."""
        index = self.matcher.undoing.get(unless, -1)
        for number in range(len(self.blocks) - 1, -1, -1) if index >= 0 else ():
            block = self.blocks[number]
            if block.may_match >> index & 1:
                text = self._text(number)
                last = max((start for start, _ in self.matcher.lines(index, text)), default=-1)
                if last >= 0:
                    return block.first + text.count(b"\n", 0, last)
        return 0

    def _hit(self, number: int, index: int, text: bytes, start: int, match: Any) -> RuleHit:
        end = text.find(b"\n", match.end())
        line_num = self.blocks[number].first + text.count(b"\n", 0, start)
        line = _text(text[start : len(text) if end < 0 else end])
        return RuleHit(self.matcher.rules[index], line_num, line, captures_of(match))

    def ranked(self) -> Iterator[RuleHit]:
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
        if not seen and self.matcher.ruleset.last_resort and (last := self._last_resort()):
            yield last

    def _last_resort(self) -> RuleHit | None:
        """Return the last line of text above the first error, which the failed step wrote."""
        error = self.matcher.error
        for number, block in enumerate(self.blocks):
            if block.may_match >> error & 1:
                text = self._clean(number)
                start = next((start for start, _ in self.matcher.lines(error, text)), None)
                if start is not None:
                    return self._above(block.first + text.count(b"\n", 0, start))
        return None

    def _above(self, line_num: int) -> RuleHit | None:
        for above in range(line_num - 1, max(line_num - LOOKED_BACK, 1) - 1, -1):
            number = self._number(above)
            line = self._text(number).split(b"\n")[above - self.blocks[number].first].strip()
            if line and not line.startswith((b"##[", b"[command]")):
                return RuleHit(LAST_RESORT, above, _text(line), [_text(line)])
        return None

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
            if earliest := min(hits, key=lambda hit: hit.number, default=None):
                return _error_line(earliest)
        return None

    def _verdict(self, rank: int, hit: RuleHit) -> LineVerdict:
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
        """Return the lines around one, fewer on both sides if they are long, and the number of the first."""
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
        """Return the block that holds a line; the last one for a line past the end."""
        return max(bisect_right(self.blocks, line_num, key=itemgetter(0)) - 1, 0)

    def _scan(self) -> None:
        """Look at every block once to see which patterns may match and where sections are."""
        line, since = 1, dict[int, int]()  # section -> the line where it began
        marks = sum(1 << index for pair in self.matcher.sections for index in pair)
        marks |= 1 << self.matcher.echoed
        for number, raw in enumerate(self.source):
            uncoloured = without_colours(raw, first=number == 0)
            may_match = self.matcher.may_match(uncoloured, raw=True)
            lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
            self.blocks.append(_Block(line, lines, may_match))
            if may_match & marks:
                text = self.matcher.without_ignored(self._clean(number, uncoloured), may_match)
                self._find_sections(line, text, may_match, since)
            line += lines
        if self.matcher.ruleset.compat:
            self.dropped += [(start, line) for section, start in since.items() if section != ECHO]
        self.dropped = _union(self.dropped)

    def _find_sections(self, first: int, text: bytes, may_match: int, since: dict[int, int]) -> None:
        self.echoes += self._line_numbers(first, text, may_match, self.matcher.echoed)
        for section, pair in enumerate(self.matcher.sections):
            marks = [
                (line, stops)
                for stops, index in enumerate(pair)
                for line in self._line_numbers(first, text, may_match, index)
            ]
            for line, stops in sorted(marks):
                if stops and section in since and line > since[section]:
                    start = since.pop(section)
                    if section != ECHO or self._is_echo(start, line):
                        self.dropped.append((start, line))
                elif not stops and (section == ECHO or section not in since):
                    since[section] = line  # groups do not nest

    def _line_numbers(self, first: int, text: bytes, may_match: int, index: int) -> Iterator[int]:
        line, at = first, 0
        for start in self.matcher.line_starts(index, text) if may_match >> index & 1 else ():
            line += text.count(b"\n", at, start)
            at = start
            yield line

    def _is_echo(self, start: int, stop: int) -> bool:
        at = bisect_left(self.echoes, start)
        return at < len(self.echoes) and self.echoes[at] < stop

    def _text(self, number: int) -> bytes:
        """Return the cleaned lines of a block; those that no rule looks at are empty."""
        if number not in self.texts:
            block = self.blocks[number]
            text = self.matcher.without_ignored(self._clean(number), block.may_match)
            at = bisect_left(self.dropped, block.first, key=itemgetter(1))
            if at < len(self.dropped) and self.dropped[at][0] < block.first + block.lines:
                text = self._without_sections(block, text, at)
            if number not in self.refined:  # raw lines promise more than cleaned ones hold
                self.refined.add(number)
                # the error may be an ignored line
                matches = self.matcher.may_match(text) | 1 << self.matcher.error
                self.blocks[number] = block._replace(may_match=block.may_match & matches)
            self._keep(self.texts, number, text)
        return self.texts[number]

    def _clean(self, number: int, uncoloured: bytes = b"") -> bytes:
        """Return the lines of a block as rules see them, with those that no rule looks at."""
        if number not in self.cleaned:
            text = uncoloured or without_colours(self.source.block(number), first=number == 0)
            self._keep(self.cleaned, number, _lines_for_rules(text))
        return self.cleaned[number]

    @staticmethod
    def _keep(kept: dict[int, bytes], number: int, text: bytes) -> bytes:
        if len(kept) >= KEPT_BLOCKS:
            del kept[next(iter(kept))]
        kept[number] = text
        return text

    def _without_sections(self, block: _Block, text: bytes, at: int) -> bytes:
        lines = text.split(b"\n")
        while at < len(self.dropped) and self.dropped[at][0] < block.first + block.lines:
            low = max(self.dropped[at][0] - block.first, 0)
            high = min(self.dropped[at][1] - block.first + 1, block.lines)
            lines[low:high] = [b""] * (high - low)
            at += 1
        return b"\n".join(lines)


def _lines_for_rules(uncoloured: bytes) -> bytes:
    """Return lines without colours as rules see them."""
    return without_prefixes(without_timestamps(uncoloured))


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges of lines, and join those that overlap."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _error_line(hit: RuleHit) -> dict[str, Any]:
    return {"rule": hit.rule.name, "kind": hit.rule.kind, "line": hit.text, "line_num": hit.number}


def _text(value: bytes) -> str:
    return value[: TEXT_MOST * 4].decode("utf-8", "replace")[:TEXT_MOST]


def render_fixture(content: bytes, ruleset: Ruleset) -> bytes:
    """Move a fixture's marks to where the ruleset puts them now; it is unchanged if they stand there already."""
    if valid_utf8(content) != content:
        raise OotbotError("it is not UTF-8")
    plain = fixture_log(content)
    head = [content.split(b"\n", 1)[0]] if content.startswith(SOURCE_MARK) else []
    log = plain.split(b"\n")
    if hit := find_winner(PlainLog.of(plain), ruleset):
        number = hit.number - 1
        log[number] = MATCH_MARK + _marked(log[number], hit.rule.pattern, last=hit.number == len(log))
    return b"\n".join((*head, *log))


def marked_line(content: bytes) -> str:
    """Return the line that a fixture marks, or say that it marks none."""
    marked = next((line for line in content.split(b"\n") if line.startswith(MATCH_MARK)), None)
    return marked.decode("utf-8", "replace") if marked else "(no verdict)"


def fixture_log(content: bytes) -> bytes:
    """Return a fixture's fragment of a log, without marks."""
    lines = content.split(b"\n")
    return b"\n".join([_unmarked(line) for line in lines[lines[0].startswith(SOURCE_MARK) :]])


def _unmarked(line: bytes) -> bytes:
    """Remove marks from a line; of more closing than opening ones, the last are marks."""
    if not line.startswith(MATCH_MARK):
        return line
    parts = line.removeprefix(MATCH_MARK).split(CLOSE_MARK)
    own = len(parts) - 1 - line.count(OPEN_MARK)
    head = CLOSE_MARK.join(parts[: own + 1]) if own > 0 else parts[0]
    return (head + b"".join(parts[max(own, 0) + 1 :])).replace(OPEN_MARK, b"")


def _marked(raw: bytes, pattern: str, *, last: bool) -> bytes:
    """Mark in a raw line what the pattern captures in the cleaned one."""
    body = raw if last else raw.removesuffix(b"\r")
    begin = timestamp_length(body)
    places = [begin + at for start, end in kept_spans(body[begin:]) for at in range(start, end)]
    places = places[prefix_length(bytes(body[at] for at in places)) :]
    match = rulesets.compile_pattern(pattern).search(bytes(body[at] for at in places))
    groups = range(1, len(match.groups()) + 1) if match.groups() else range(1)
    places.append(len(body))
    marks = []
    for start, end in (match.span(group) for group in groups if match.group(group) is not None):
        marks += [(places[start], True), (places[end - 1] + 1 if end > start else places[start], False)]
    for at, opens in sorted(marks, reverse=True):
        raw = raw[:at] + (OPEN_MARK if opens else CLOSE_MARK) + raw[at:]
    return raw
