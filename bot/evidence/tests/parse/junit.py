"""JUnit XML, as its many producers write it: every case with its attempts. docs/tests.md says which are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

from bot.core.masking import mask
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.tests.parse.cases import (
    FAILING,
    JUST_PASSED,
    MOST_CASES,
    PASS,
    Attempt,
    Cases,
    Element,
    Group,
    Outcome,
    check_size,
    disambiguate,
    merge,
    path_of,
)
from bot.evidence.tests.parse.texts import (
    MESSAGE_MOST,
    NAME_MOST,
    OUTPUT_MOST,
    STACK_MOST,
    WHOLE_LOG_MOST,
    KeptText,
    SourcePlace,
    beginning,
    is_too_long,
    line_number,
    milliseconds,
    place_of_case,
    short_name,
)
from bot.evidence.tests.parse.xml_documents import parse_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SAME_NAMES_MOST = 200  # tests of one name in one suite, by their lines
DIGITS = 9  # of a number that is claimed
RETRYING = "openshift-tests"  # begins the suites of a tool of Prow that writes every attempt
GRADLE = frozenset({"hostname", "timestamp"})
EARLIER = frozenset({"rerun", "flakyFailure", "flakyError", "rerunFailure", "rerunError"})
FINAL = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}
NOT_RUN = frozenset({"notrun", "disabled", "suppressed", "skipped"})
TIMED_OUT = frozenset({"timeout", "timedout", "timed_out", "timed-out"})
STATUSES = {
    "fail": Outcome.FAILED,
    "failed": Outcome.FAILED,
    "failure": Outcome.FAILED,
    "error": Outcome.ERROR,
}
STATUSES |= dict.fromkeys(TIMED_OUT, Outcome.TIMED_OUT)
RANKS = {Outcome.FAILED: 3, Outcome.TIMED_OUT: 3, Outcome.ERROR: 2, Outcome.SKIPPED: 1, Outcome.XFAILED: 1}
EXPECTED = re.compile(r"TEST_CASE tagged with !(?:mayfail|shouldfail)")  # Catch2, beside the failure
# of CTest: it lists these tests among those that failed
UNABLE = (
    "Unable to find executable", "Required Files Missing", "Missing Configuration", "Failed to start",
    "Failed to change working directory", "Insufficient resources",
)  # fmt: skip
TEARDOWN = "failed on teardown with"  # pytest
# cargo nextest, .NET; JUnit 4 has an exception of its own
_TIMEOUT_TYPES = re.compile(r"(?:test )?time-?out|(?:\w+\.)*TestTimedOutException", re.IGNORECASE)
_TIMEOUT_MESSAGES = re.compile(
    r"(?:Failed: )?Timeout (?:>|\(>)[\d.]+s"  # pytest-timeout
    r"|Timeout$"  # ctest
    r"|(?:thrown: \")?Exceeded timeout of \d+ ?ms"  # Jest
    r"|(?:Error: )?Timeout of \d+ms exceeded"  # mocha
    r"|Test exceeded Timeout value of \d+"  # NUnit
    r"|Test execution timed out after \d+"  # xUnit.net
    r"|panic: test timed out after \d"  # go
    r"|(?:(?:\w+\.)*TimeoutException: )?[\w$]+\([^)]*\) timed out after \d+ \w+"  # JUnit 5
)
LOOKED_AT = 300  # characters of a message
# lines that say which test failed, not why: of go, TAP
_NO_MESSAGE = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME)\b|--- (?:FAIL|PASS|SKIP):|not ok\b|#?\s*Failed test\b")
GENERIC = frozenset({"Failed", "Failure"})  # messages of gotestsum and go-junit-report
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
    """The file is not a test report but, say, a coverage report or a list of tests. The message says what it is."""


class JUnit(NamedTuple):
    """The cases of a report, with notes."""

    cases: Cases
    notes: list[str]  # what had to be done to read it, and what it says wrongly of itself


class _Seen(NamedTuple):
    """A case as its element describes it."""

    name: str
    attempts: Sequence[Attempt]
    time: int | None
    line: int  # 0: not known


class Suite:
    """An open suite element."""

    __slots__ = (
        "_claimed", "_gradle", "_properties", "cases", "failed", "failures_read", "file", "hostname", "name", "number",
        "pytest", "tries_again",
    )  # fmt: skip

    def __init__(
        self, attributes: dict[str, str], number: int, outer: Suite | None, *, all_pytest: bool
    ) -> None:
        self.number = number
        self.name = attributes.get("name", "")
        self.hostname = attributes.get("hostname", "")[:100]
        self.file: str = attributes.get("file") or (outer.file if outer else "")
        self.pytest = all_pytest or self.name == "pytest"
        # whether several cases of one identity are attempts of one test, in their order
        self.tries_again = self.pytest or self.name.startswith(RETRYING)
        self.cases = 0
        self.failures_read = 0
        self.failed: tuple[Group, int] | None = None  # the newest case that failed
        self._claimed = sum(_number(attributes.get(name)) for name in ("failures", "errors"))
        self._gradle = attributes.keys() >= GRADLE
        self._properties = 0

    @property
    def claimed_failures(self) -> int:
        """How many of its cases failed, according to itself."""
        return self._claimed

    def see_property(self, tag: str, attributes: dict[str, str]) -> None:
        """Recognize producers by their properties: gotestsum has one, Gradle none."""
        if tag == "property":
            self._properties += 1
            if attributes.get("name") == "go.version":
                self.tries_again = True
            elif self._gradle and self._properties == 1 and not self.pytest:
                self.tries_again = self.name.startswith(RETRYING)
        elif self._gradle and not self.cases:
            self.tries_again = True

    @staticmethod
    def numbered(group: Group, name: str, line: int) -> str | None:
        """Number a test that has another's name but stands in another line; None if too many do."""
        for number in range(2, SAME_NAMES_MOST):
            known = group.names.get(f"{name} #{number}")
            if known is None or group.lines[known] == line:
                return f"{name} #{number}"
        return None


def is_timeout(kind: str, message: str) -> bool:
    """Whether a failure of this type and message is a timeout of the test."""
    matched = _TIMEOUT_TYPES.fullmatch(kind.strip()) or _TIMEOUT_MESSAGES.match(message[:LOOKED_AT].strip())
    return bool(matched)


def outcome_of_child(tag: str, kind: str) -> Outcome:
    """Return the outcome that a child element of a case stands for."""
    if tag == "skipped" and kind == "pytest.xfail":
        return Outcome.XFAILED
    return FINAL.get(tag, Outcome.ERROR if tag.endswith("Error") else Outcome.FAILED)


def message_of(given: str, text: str, case: Mapping[str, str]) -> str:
    """Return the message of a failure: its own, or the first line of its text that says more than the test's name."""
    if given and given not in GENERIC and not _NO_MESSAGE.match(given):
        return given
    name, classname = case.get("name", ""), case.get("classname", "")
    names = {name, f"{classname}::{name}", f"{classname}.{name}"}
    for line in text.strip().splitlines():
        said = line.strip()
        if said and said not in names and not _NO_MESSAGE.match(said):
            return said.removeprefix("# ").strip()
    return given or text.strip().partition("\n")[0].strip()


def attempts_of_case(
    case: Mapping[str, str], children: Mapping[str, Attempt], earlier: Sequence[tuple[str, Attempt]]
) -> Sequence[Attempt]:
    """Return the attempts of a case, the final one last.

    `children` are its failure, error and skipped elements by tag, `earlier` those of attempts before, with their tags.
    """
    final = _final(case, children)
    tried = [attempt for _, attempt in earlier]
    if final is None:
        return [*tried, *JUST_PASSED] if tried else JUST_PASSED
    if final.outcome in FAILING and case.get("flaky") == "true":  # Flank: it passed when it was tried again
        return [*tried, final, PASS]
    if final.outcome in FAILING and any(tag.startswith("flaky") for tag, _ in earlier):
        # it passed, and its runner is told to fail it for being flaky
        first = tried[0]
        explained = final._replace(stack=final.stack or first.stack, output=final.output or first.output)
        return [*tried[1:], PASS, explained]
    return [*tried, final]


def parse_junit(pieces: Callable[[], Iterable[bytes]], invoking_file: str = "") -> JUnit:
    """Parse one file; `pieces` returns its content, and may be called twice.

    Raises Broken where it is no whole report, NoReport where it is none at all, Refused over a limit.
    """
    reader = _Reader(invoking_file)
    notes = parse_documents(pieces, reader.new_parser, reader.begin)
    reader.finish()
    return JUnit(reader.cases, [*notes, *reader.notes])


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= DIGITS else 0


def _final(case: Mapping[str, str], children: Mapping[str, Attempt]) -> Attempt | None:
    said = max(children.values(), key=lambda attempt: RANKS[attempt.outcome], default=None)
    skipped = children.get("skipped")
    words = {case.get("status", "").casefold(), case.get("result", "").casefold()}
    if said is None:
        status = next((STATUSES[word] for word in words if word in STATUSES), None)
        if status is not None:
            return Attempt(status)
        return Attempt(Outcome.SKIPPED) if words & NOT_RUN else None
    if said.outcome in FAILING:
        if skipped and (skipped.type == "todo" or EXPECTED.match(skipped.message)):
            return said._replace(outcome=Outcome.XFAILED, stack="", output="")
        if "disabled" in words or (skipped and said.message.startswith("Skipped:")):  # the second: minitest
            return said._replace(outcome=Outcome.SKIPPED, stack="", output="")
    elif "notrun" in words and said.message.startswith(UNABLE):
        return said._replace(outcome=Outcome.ERROR)
    return said


class _Reader:
    """The handlers that expat calls."""

    def __init__(self, invoking_file: str) -> None:
        self._invoking_file = invoking_file
        self.begin()

    def begin(self) -> None:
        """Forget what was read: the file will be read again."""
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
        self._groups: dict[tuple[str, str, bool], tuple[SourcePlace, Group]] = {}
        self._apart: dict[tuple[SourcePlace, int], Group] = {}  # cases whose names another suite element has
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
        """Add a failure of the suite itself as a case: its file crashed, or could not be loaded."""
        suite = self._open[-1]
        suite.failures_read += 1
        key = (suite.file, suite.name, suite.pytest)
        where, group = self._groups.get(key) or self._new_group(key)
        self._add(where, group, _Seen(OF_SUITE, [attempt], None, 0))

    def _finish(self, case: dict[str, str]) -> None:
        """Add the case that has ended."""
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

    def _new_group(self, key: tuple[str, str, bool]) -> tuple[SourcePlace, Group]:
        file, classname, pytest = key
        place = place_of_case(file, classname, pytest=pytest)
        where = SourcePlace(place.file, place.suite, self._invoking_file)
        self._groups[key] = made = (where, self.cases.group(where))
        return made

    def _add(self, where: SourcePlace, group: Group, seen: _Seen) -> tuple[int, Group]:
        """Add a case that may be known; return its position and its group."""
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
        """Attach a suite's output to the preceding case that failed without a message, as Bazel writes it."""
        suite = self._open[-1]
        if suite.failed:
            group, position = suite.failed
            newest = group.attempts[position][-1]
            if not newest.stack and not newest.output:
                group.attempts[position][-1] = newest._replace(output=text.tail(WHOLE_LOG_MOST))

    def finish(self) -> None:
        """Distinguish cases of one name in several suites; raises NoReport if there was no report."""
        if not self._is_report:
            raise NoReport(f"no report of tests: it begins with <{self._root[:50]}>")
        elements = self._elements
        apart: dict[SourcePlace, list[Group]] = {}
        for (where, _), group in self._apart.items():
            apart.setdefault(where, [self.cases.groups[where]]).append(group)
        for where, groups in apart.items():
            by_place = disambiguate(
                where,
                groups,
                lambda group, position: group.suites[position],
                lambda number: path_of(number, elements),
            )
            del self.cases.groups[where]
            for own_place, group in merge(by_place).items():
                known = self.cases.groups.get(own_place)
                self.cases.groups[own_place] = (
                    merge({own_place: [known, group]})[own_place] if known else group
                )
