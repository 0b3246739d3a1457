"""A suite element of JUnit XML that is open: who wrote it, and what it claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.ci.test_results.parse.cases import Group

SAME_NAMES_MOST = 200  # tests of one name in one suite, by their lines
DIGITS = 9  # of a number that is claimed
RETRYING = "openshift-tests"  # begins the suites of a tool of Prow that writes every attempt
GRADLE = frozenset({"hostname", "timestamp"})


class Suite:
    """A suite element that is open."""

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
        """How many of its cases failed, as it says itself."""
        return self._claimed

    def see_property(self, tag: str, attributes: dict[str, str]) -> None:
        """Take note of properties: gotestsum is known by one, Gradle by having none."""
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
        """Return the name of a test that has the name of another one and stands in another line; None: too many do."""
        for number in range(2, SAME_NAMES_MOST):
            known = group.names.get(f"{name} #{number}")
            if known is None or group.lines[known] == line:
                return f"{name} #{number}"
        return None


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= DIGITS else 0
