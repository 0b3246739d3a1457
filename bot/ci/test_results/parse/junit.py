"""JUnit XML, as its many producers write it: every case with its attempts. docs/tests.md says which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.test_results.parse.cases import (
    FAILING,
    JUST_PASSED,
    MOST_CASES,
    Attempt,
    Cases,
    Group,
    Outcome,
    check_size,
)
from bot.ci.test_results.parse.names import Place, place
from bot.ci.test_results.parse.outcomes import (
    EARLIER,
    FINAL,
    RANKS,
    TEARDOWN,
    attempts_of_case,
    is_timeout,
    message_of,
    outcome_of_child,
)
from bot.ci.test_results.parse.same_names import Element, path_of, put_together, tell_apart
from bot.ci.test_results.parse.suites import Suite
from bot.ci.test_results.parse.texts import (
    MESSAGE_MOST,
    NAME_MOST,
    OUTPUT_MOST,
    STACK_MOST,
    WHOLE_LOG_MOST,
    KeptText,
    beginning,
    is_too_long,
    line_number,
    milliseconds,
    short_name,
)
from bot.ci.test_results.parse.xml_documents import parse_documents
from bot.core.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DEPTH_MOST = 64
ATTRIBUTES_MOST = 64
ATTRIBUTE_MOST = 64 * 1024  # characters
TEXTS_MOST = 10_000  # attempts with message and stack in one report; more are counted
NOTES_MOST = 20
OUTPUTS = frozenset({"system-out", "system-err"})
ROOTS = frozenset({"testsuites", "testsuite", "testcase"})
OTHER_FORMATS = {"gtester": "GLib's gtester writes another format", "assemblies": "xUnit.net's own format"}
TRANSFORMATIONS = frozenset({"stylesheet", "transform"})  # XSLT, which may hold elements of a report
OF_SUITE = "(suite)"  # name of the case for what a suite itself failed with


class NoReport(Exception):
    """The file is no report of tests: a report of coverage, a list of tests. The message says what it is."""


class JUnit(NamedTuple):
    """What a report says."""

    cases: Cases
    notes: list[str]  # what had to be done to read it, and what it says wrongly of itself


def parse_junit(pieces: Callable[[], Iterable[bytes]], invoking_file: str = "") -> JUnit:
    """Return the cases of one file; `pieces` returns its content, twice if need be.

    Raises Broken where it is no whole report, NoReport where it is none at all, Refused over a limit.
    """
    reader = _Reader(invoking_file)
    notes = parse_documents(pieces, reader.new_parser, reader.begin)
    reader.finish()
    return JUnit(reader.cases, [*notes, *reader.notes])


class _Seen(NamedTuple):
    """A case as its element has it."""

    name: str
    attempts: Sequence[Attempt]
    time: int | None
    line: int  # 0: not known


class _Reader:
    """What expat calls."""

    def __init__(self, invoking_file: str) -> None:
        self._invoking_file = invoking_file
        self.begin()

    def begin(self) -> None:
        """Forget what was read: the file is read again."""
        self.parser: Any = None
        self.cases = Cases()
        self.notes: list[str] = []
        self._root = ""
        self._has_doctype = False
        self._is_report = False
        self._count = 0
        self._depth = 0
        self._elements = [Element("", "", 0)]
        self._outside = Suite({}, 0, None, all_pytest=False)  # cases that stand in no suite
        self._open = [self._outside]
        self._groups: dict[tuple[str, str, bool], tuple[Place, Group]] = {}
        self._apart: dict[tuple[Place, int], Group] = {}  # cases whose names another suite element has
        self._texts = 0
        self._all_pytest = False
        self._case: dict[str, str] | None = None
        self._case_depth = 0
        self._begin_case()

    def new_parser(self, encoding: str | None) -> Any:
        """Return a parser for the next document of the file."""
        parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.StartDoctypeDeclHandler = self._doctype
        self.parser = parser
        self._depth = 0
        self._has_doctype = False
        self._open = [self._outside]
        return parser

    def _doctype(self, _name: str, _system: str | None, _public: str | None, has_internal: int) -> None:
        if has_internal:
            raise Refused("it has a DOCTYPE with definitions")
        self._has_doctype = True

    def _begin_case(self) -> None:
        self._children: dict[str, Attempt] = {}
        self._earlier: list[tuple[str, Attempt]] = []
        self._output: KeptText | None = None
        self._child: tuple[str, dict[str, str]] | None = None
        self._text: KeptText | None = None
        self._text_depth = 0
        self._has_children = False  # that say something of it

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        depth = self._depth = self._depth + 1
        if depth > DEPTH_MOST:
            raise Refused(f"elements nested over {DEPTH_MOST} deep")
        if len(attributes) > ATTRIBUTES_MOST or len("".join(attributes.values())) > ATTRIBUTE_MOST:
            self._check(attributes)
        if ":" in tag:
            tag = tag.rpartition(":")[2]
        if depth == 1:
            self._start_document(tag, attributes)
        if tag == "testcase":
            if self._case is not None:
                self._finish(self._case)
            self._case, self._case_depth = attributes, depth
        elif self._text is not None:
            self.parser.CharacterDataHandler = self._text.add if tag == "stackTrace" else None
        elif self._case is not None:
            if self._depth == self._case_depth + 1:
                self._start_child(tag, attributes)
        else:
            self._start_outside(tag, attributes)

    def _start_document(self, tag: str, attributes: dict[str, str]) -> None:
        self._root = tag
        if tag in OTHER_FORMATS:
            raise Broken(f"no JUnit XML: {OTHER_FORMATS[tag]}")
        if tag in TRANSFORMATIONS or (self._has_doctype and tag not in ROOTS):
            raise NoReport(f"no report of tests: it begins with <{tag[:50]}>")
        if self._has_doctype:
            raise Refused("it has a DOCTYPE")
        if tag == "testsuites" and attributes.get("name") == "AllTests" and "failures" not in attributes:
            raise NoReport("no report of tests: GoogleTest's list of tests that did not run")
        self._is_report |= tag in ROOTS

    @staticmethod
    def _check(attributes: dict[str, str]) -> None:
        if len(attributes) > ATTRIBUTES_MOST:
            raise Refused(f"an element of {len(attributes):,} attributes, limit {ATTRIBUTES_MOST}")
        longest = max(map(len, attributes.values()))
        if longest > ATTRIBUTE_MOST:
            raise Refused(f"an attribute of {longest:,} characters, limit {ATTRIBUTE_MOST:,}")

    def _start_child(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in OUTPUTS:
            self._has_children = True
            self._output = self._output or KeptText()
            self._collect(self._output)
        elif tag in FINAL or tag in EARLIER:
            self._has_children = True
            self._child = (tag, attributes)
            self._collect(KeptText())

    def _start_outside(self, tag: str, attributes: dict[str, str]) -> None:
        suite = self._open[-1]
        if tag == "testsuite":
            self._is_report = True
            inner = Suite(attributes, len(self._elements), suite, all_pytest=self._all_pytest)
            self._elements.append(Element(short_name(inner.name), inner.hostname, suite.number))
            check_size(0, len(self._elements) - 1)
            self._open.append(inner)
        elif tag == "testsuites":
            self._is_report = True
            self._all_pytest = attributes.get("name") == "pytest tests"
        elif tag in {"properties", "property"}:
            suite.see_property(tag, attributes)
        elif tag in {"failure", "error"} and len(self._open) > 1:
            self._child = (tag, attributes)
            self._collect(KeptText())
        elif tag in OUTPUTS and suite.failed:
            self._collect(KeptText())

    def _collect(self, text: KeptText) -> None:
        self._text, self._text_depth = text, self._depth
        self.parser.CharacterDataHandler = text.add

    def end(self, tag: str) -> None:
        depth = self._depth
        self._depth = depth - 1
        if self._text is not None:
            if depth == self._text_depth:
                self._end_text(self._text)
            else:
                self.parser.CharacterDataHandler = self._text.add
        elif self._case is not None:
            if depth == self._case_depth:
                self._finish(self._case)
        elif len(self._open) > 1 and (tag == "testsuite" or tag.endswith(":testsuite")):
            self._end_suite(self._open.pop())

    def _end_suite(self, suite: Suite) -> None:
        self._open[-1].failures_read += suite.failures_read
        if (claimed := suite.claimed_failures) > suite.failures_read and len(self.notes) < NOTES_MOST:
            name = suite.name[:100] or "(no name)"
            self.notes.append(f"suite {name} claims {claimed:,} failures, it has {suite.failures_read:,}")

    def _end_text(self, text: KeptText) -> None:
        self._text = None
        self.parser.CharacterDataHandler = None
        if self._child is None:
            if self._case is None:
                self._explain(text)
            return
        (tag, attributes), self._child = self._child, None
        attempt = self._attempt(tag, attributes, text)
        if self._case is None:
            self._add_failure_of_suite(attempt)
        elif tag in EARLIER:
            self._earlier.append((tag, attempt))
        elif tag not in self._children or RANKS[attempt.outcome] > RANKS[self._children[tag].outcome]:
            self._children[tag] = attempt

    def _attempt(self, tag: str, attributes: dict[str, str], text: KeptText) -> Attempt:
        kind = attributes.get("type", "")
        outcome = outcome_of_child(tag, kind)
        if outcome in FAILING:
            self._texts += 1
        if self._texts > TEXTS_MOST:
            return Attempt(outcome)
        message = message_of(attributes.get("message", ""), text.beginning(), self._case or {})
        if outcome in FAILING and is_timeout(kind, message):
            outcome = Outcome.TIMED_OUT
        return Attempt(
            outcome,
            beginning(mask(message), MESSAGE_MOST),
            beginning(kind, MESSAGE_MOST),
            text.both(STACK_MOST) if outcome in FAILING else "",
        )

    def _add_failure_of_suite(self, attempt: Attempt) -> None:
        """Add what a suite itself failed with as a case: its file died, or could not be loaded."""
        suite = self._open[-1]
        suite.failures_read += 1
        key = (suite.file, suite.name, suite.pytest)
        where, group = self._groups.get(key) or self._new_group(key)
        self._add(where, group, _Seen(OF_SUITE, [attempt], None, 0))

    def _finish(self, case: dict[str, str]) -> None:
        """Add the case that ends here."""
        self._case = None
        self._count += 1
        if self._count > MOST_CASES:
            check_size(self._count, 0)
        suite = self._open[-1]
        suite.cases += 1
        key = (case.get("file") or suite.file, case.get("classname") or suite.name, suite.pytest)
        where, group = self._groups.get(key) or self._new_group(key)
        name, said = case.get("name", ""), case.get("time")
        if not 0 < len(name) <= NAME_MOST:
            name = short_name(name) or f"#{suite.cases}"
        time = milliseconds(said)
        if time is None and is_too_long(said):
            self.cases.too_long += 1
        line = line_number(case["line"], from_zero=suite.pytest) or 0 if "line" in case else 0
        if not self._has_children and "status" not in case and "result" not in case:
            if not group.add_passed(name, time, suite.number, line):
                self._add(where, group, _Seen(name, JUST_PASSED, time, line))
            return
        attempts = self._attempts(case, line)
        position, group = self._add(where, group, _Seen(name, attempts, time, line))
        if attempts is not JUST_PASSED:
            failed = attempts[-1].outcome in FAILING
            suite.failures_read += failed
            suite.failed = (group, position) if failed else None
        self._begin_case()

    def _attempts(self, case: dict[str, str], line: int) -> Sequence[Attempt]:
        attempts = attempts_of_case(case, self._children, self._earlier)
        final = attempts[-1]
        if final.outcome not in FAILING:
            return attempts
        if line:
            final = final._replace(line=line)
        if self._output is not None and self._texts <= TEXTS_MOST:
            final = final._replace(output=self._output.tail(OUTPUT_MOST))
        return [*attempts[:-1], final]

    def _new_group(self, key: tuple[str, str, bool]) -> tuple[Place, Group]:
        file, classname, pytest = key
        found = place(file, classname, pytest=pytest)
        where = Place(found.file, found.suite, self._invoking_file)
        self._groups[key] = made = (where, self.cases.group(where))
        return made

    def _add(self, where: Place, group: Group, seen: _Seen) -> tuple[int, Group]:
        """Add a case that may be known; returns its position, and the group it is in."""
        suite, (name, attempts, time, line) = self._open[-1], seen
        known = group.names.get(name)
        if known is not None and group.suites[known] != suite.number:  # another suite's: another test
            group = self._apart.setdefault((where, suite.number), Group())
            known = group.names.get(name)
        if known is None:
            return group.add(name, attempts, time, suite.number, line), group
        if suite.pytest:
            newest = group.attempts.get(known, JUST_PASSED)[-1]
            if newest.outcome in FAILING and newest.message:  # a re-run leaves nothing: this one was the last
                if not attempts[-1].message.startswith(TEARDOWN):  # of the same attempt
                    group.add_repetition(known, attempts, time)
                return known, group
            group.newest_failed(name)
        if suite.tries_again:
            return group.add(name, attempts, time, suite.number, line), group
        if line and group.lines[known] and line != group.lines[known]:
            numbered = suite.numbered(group, name, line)
            if numbered:
                return self._add(where, group, seen._replace(name=numbered))
        group.add_repetition(known, attempts, time)
        return known, group

    def _explain(self, text: KeptText) -> None:
        """Keep a suite's output for the case before it that failed without a word, as Bazel writes it."""
        suite = self._open[-1]
        if suite.failed:
            group, position = suite.failed
            newest = group.attempts[position][-1]
            if not newest.stack and not newest.output:
                group.attempts[position][-1] = newest._replace(output=text.tail(WHOLE_LOG_MOST))

    def finish(self) -> None:
        """Tell cases of one name in several suites apart; raises NoReport where there was no report."""
        if not self._is_report:
            raise NoReport(f"no report of tests: it begins with <{self._root[:50]}>")
        elements = self._elements
        apart: dict[Place, list[Group]] = {}
        for (where, _), group in self._apart.items():
            apart.setdefault(where, [self.cases.groups[where]]).append(group)
        for where, groups in apart.items():
            found = tell_apart(
                where,
                groups,
                lambda group, position: group.suites[position],
                lambda number: path_of(number, elements),
            )
            del self.cases.groups[where]
            for one, group in put_together(found).items():
                known = self.cases.groups.get(one)
                self.cases.groups[one] = put_together({one: [known, group]})[one] if known else group
