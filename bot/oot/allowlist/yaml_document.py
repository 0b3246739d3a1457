"""The allowlist's text as YAML nodes: reading values and globs from them, and the problems found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import re2
import yaml
from pathspec import PathSpec
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bot.core.setting_types import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 12

_WRITE_OUT = "is not accepted: write the value itself"

# Besides control characters: the line breaks only YAML 1.1 knows, which would shift line numbers.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# docs/allowlist.schema.json holds the same patterns, so they use only what both dialects know.
REPO = (
    "(?=[^/]{1,39}/)[A-Za-z0-9]+(-[A-Za-z0-9]+)*"  # owner: no hyphen first, last or twice
    r"/(?!\.{1,2}$)(?!.*\.git$)[A-Za-z0-9._-]{1,100}"
)
LOGIN = "@?(?=[^@]{1,39}$)[A-Za-z0-9]+([-_][A-Za-z0-9]+)*"  # _ in logins an enterprise manages
DEVICE_WORD = "[A-Za-z][A-Za-z0-9]{0,49}"
DEVICE = "[A-Za-z0-9][A-Za-z0-9._-]{0,49}"
WORKFLOW_FILE = r"[A-Za-z0-9._-]{1,100}\.ya?ml"
REF = r"[^\s\x00-\x1f\x7f~^:\\]{1,255}"

MAX_TIMEOUT = 35 * 86_400  # a callback token's life: later reports are refused whatever we wait
MOST_GLOBS = 200
LONGEST_GLOB = 255
_WRITABLE = re.compile(rf"[^\x00-\x1f\x7f]{{1,{LONGEST_GLOB}}}")

# means one thing to git and another to regular expressions
_NESTED_SET = re.compile(r"\[[^]]*(\[|--|&&|\|\||~~)")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and how to put it right."""

    line: int  # counted from 1
    message: str  # one line; words taken from the file are escaped

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


class AllowlistError(ValueError):
    """The text is no allowlist; `problems` holds all that is wrong with it, ordered by line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(f"{self.problems[0]}{more}")


class Field(NamedTuple):
    """A value and the node that names it; in short forms one node may be both."""

    at: Node
    value: Node


class Problems:
    """Collects what is wrong, so that one reading of the file names everything."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, where: Node | int, message: str) -> None:
        """Add `message` for the line of a node, or for a line by its number."""
        self._found.append(Problem(where if isinstance(where, int) else line_of(where), message))

    def raise_if_any(self) -> None:
        """Raise AllowlistError with all problems, if there are any."""
        if self._found:
            raise AllowlistError(self._found)


def compose(text: str | bytes) -> Node | None:
    """Return the root node, None for a text without one; AllowlistError if it is unusable YAML."""
    problems = Problems()
    words = _decoded(text, problems)
    problems.raise_if_any()
    loader = _Loader(words, problems)
    root: Node | None = None
    try:
        root = loader.get_single_node()
    except AllowlistError:
        raise  # a bound was reached; it is a ValueError too, but already explained
    except yaml.MarkedYAMLError as error:
        problems.add(*_explained(error, words))
    except (ValueError, OverflowError):
        # PyYAML converts escapes such as "\U99999999" and %YAML versions without checking them.
        problems.add(loader.line + 1, "not valid YAML: a number here is out of range")
    finally:
        loader.dispose()
    problems.raise_if_any()
    return root


def line_of(node: Node) -> int:
    """Return the line on which the node starts, counted from 1."""
    return int(node.start_mark.line) + 1


def is_empty(node: Node) -> bool:
    """Whether nothing was written (or an unquoted null), as after `L1:`."""
    plain = isinstance(node, ScalarNode) and node.style is None
    return plain and node.value in {"", "~", "null", "Null", "NULL"}


def quote_word(text: str) -> str:
    """Quote a word of the file for a message: on one line, inert, not too long."""
    cut = text if len(text) <= 60 else f"{text[:60]}..."
    return f"`{cut.encode('unicode_escape').decode()}`"


def describe_value(node: Node) -> str:
    """Describe a value for a message."""
    if isinstance(node, ScalarNode):
        return quote_word(node.value)
    return "a list" if isinstance(node, SequenceNode) else "a mapping"


def read_pairs(node: MappingNode, problems: Problems) -> dict[str, Field]:
    """Return a mapping's fields by name; keys that are no words or come twice are problems."""
    fields: dict[str, Field] = {}
    for at, value in node.value:
        if not isinstance(at, ScalarNode):
            problems.add(at, "a key must be a word, not a list or a mapping: write `key: value`")
        elif at.value in fields:
            first = line_of(fields[at.value].at)
            problems.add(at, f"{quote_word(at.value)} is already on line {first}: keep one of the two")
        else:
            fields[at.value] = Field(at, value)
    return fields


Reader = Callable[[Node, Problems], Any]


def matching(pattern: str, wanted: str) -> Reader:
    """Make a reader of one word that has to match all of `pattern`; `wanted` says it for people."""

    def read(node: Node, problems: Problems) -> str | None:
        if isinstance(node, ScalarNode) and re.fullmatch(pattern, node.value):
            return str(node.value)
        problems.add(node, f"{describe_value(node)} is not {wanted}")
        return None

    return read


def choice(choices: tuple[str, ...]) -> Reader:
    """Make a reader of one word out of `choices`."""
    return matching("|".join(choices), f"allowed here: write {' or '.join(choices)}")


def choices(allowed: tuple[str, ...]) -> Reader:
    """Make a reader of one or more words out of `allowed`, as a set."""

    def read(node: Node, problems: Problems) -> frozenset[str] | None:
        listed = words(node, problems)
        for at, word in listed:
            if word not in allowed:
                wanted = " or ".join(allowed)
                problems.add(at, f"{quote_word(word)} is not allowed here: write {wanted}")
        _refuse_none(node, listed, problems)
        read = frozenset(word for _, word in listed)
        return read if read and read <= frozenset(allowed) else None

    return read


def number(most: int) -> Reader:
    """Make a reader of a whole number from 1 to `most`; quoted, signed or octal is none."""

    def read(node: Node, problems: Problems) -> int | None:
        digits = _plain(node)
        if re.fullmatch("[1-9][0-9]{0,18}", digits) and int(digits) <= most:
            return int(digits)
        wanted = f"a whole number from 1 to {most}: write plain digits without quotes"
        problems.add(node, f"{describe_value(node)} is not {wanted}")
        return None

    return read


def truth(node: Node, problems: Problems) -> bool | None:
    """Read true or false; `yes`, `on` and quoted words mean different things to other tools."""
    word = _plain(node)
    if word in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return word.casefold() == "true"
    problems.add(node, f"{describe_value(node)} is not true or false: write one of them, unquoted")
    return None


def timeout(node: Node, problems: Problems) -> int | None:
    """Read a duration of at most 35 days as seconds."""
    if not isinstance(node, ScalarNode):
        problems.add(node, f"{describe_value(node)} is not a duration: write one, such as `6h`")
        return None
    try:
        seconds = duration(node.value)
    except ValueError as error:
        problems.add(node, str(error))
        return None
    if seconds > MAX_TIMEOUT:
        problems.add(node, f"{quote_word(node.value)} is too long: write at most `35d`")
        return None
    return seconds


def logins(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read GitHub logins, with or without @, each once and in the order written."""
    by_login: dict[str, str] = {}
    for at, word in words(node, problems):
        if re.fullmatch(LOGIN, word):
            login = word.removeprefix("@")
            by_login.setdefault(login.casefold(), login)
        else:
            problems.add(at, f"{quote_word(word)} is not a login: name people (not teams) as in `alice`")
    return tuple(by_login.values())


def refs(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read patterns of branch names or full refs."""
    patterns = words(node, problems)
    for at, word in patterns:
        if not re.fullmatch(REF, word):
            wanted = "write a branch name or a full ref, with * ? [] as wildcards"
            problems.add(at, f"{quote_word(word)} is no pattern of refs: {wanted}")
    _refuse_none(node, patterns, problems)
    return tuple(word for _, word in patterns)


def device_words(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read words that name a device, in lower case."""
    listed = words(node, problems)
    for at, word in listed:
        if not re.fullmatch(DEVICE_WORD, word):
            wanted = "use up to 50 of A-Z a-z 0-9, first a letter"
            problems.add(at, f"{quote_word(word)} is no word in the name of a test: {wanted}")
    _refuse_none(node, listed, problems)
    return tuple(dict.fromkeys(word.lower() for _, word in listed))


def words(node: Node, problems: Problems) -> list[tuple[Node, str]]:
    """Return the words of a list or of one comma separated string, each with its node."""
    if is_empty(node):
        return []
    if isinstance(node, ScalarNode):
        parts = (part.strip() for part in node.value.split(","))
        return [(node, part) for part in parts if part]
    if isinstance(node, SequenceNode):
        return list(_items(node, problems))
    problems.add(node, "a mapping is not a list of words: write `[a, b]` or `a, b`")
    return []


def read_globs(node: Node, problems: Problems) -> tuple[str, ...] | None:
    """Read globs, at most MOST_GLOBS; each that is wrong is a problem of its own line."""
    globs = words(node, problems)
    if not globs:
        problems.add(node, "the list is empty: name at least one glob, or leave the key out")
        return None
    wrong = [(at, why) for at, word in globs if (why := _problem(word))]
    if globs[0][1].startswith("!"):
        wrong.append((globs[0][0], "the first glob takes away from nothing: write `**` before it"))
    if len(globs) > MOST_GLOBS:
        wrong.append(
            (globs[MOST_GLOBS][0], f"more than {MOST_GLOBS} globs: write shorter ones for more files")
        )
    for at, why in wrong:
        problems.add(at, why)
    return None if wrong else tuple(word for _, word in globs)


@lru_cache(maxsize=256)  # pure: the same globs are the same matcher, for all backends that share them
def compile_globs(globs: tuple[str, ...]) -> PathSpec[GitIgnoreBasicPattern]:
    """Compile globs; matching takes time linear in a path's length, since anyone may choose paths."""
    return PathSpec.from_lines(GitIgnoreBasicPattern, globs, backend="re2")


def find_match(globs: tuple[str, ...], paths: Sequence[str]) -> tuple[str, str] | None:
    """Return the first path that the globs choose and the glob that decides on it; None where they choose none."""
    matcher = compile_globs(globs)
    for path in paths:
        result = matcher.check_file(path)
        if result.include and result.index is not None:
            return path, globs[result.index]
    return None


class _Loader(yaml.SafeLoader):
    """Composes nodes and refuses whatever expands to more than what is written."""

    def __init__(self, text: str, problems: Problems) -> None:
        super().__init__(text)
        self._problems = problems
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call] # so in the stubs
        line = event.start_mark.line + 1
        self._bound(line)
        if event.anchor is not None:
            mark = "*" if isinstance(event, AliasEvent) else "&"
            self._problems.add(line, f"{quote_word(mark + event.anchor)} {_WRITE_OUT}")
        if getattr(event, "tag", None) is not None:
            self._problems.add(line, f"the tag {quote_word(event.tag)} {_WRITE_OUT}")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _bound(self, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._problems.add(line, f"more than {MAX_NODES} words and lists: shorten the file")
            self._problems.raise_if_any()
        if self._depth >= MAX_DEPTH:
            self._problems.add(line, f"more than {MAX_DEPTH} levels deep: write entries flatter")
            self._problems.raise_if_any()


def _decoded(text: str | bytes, problems: Problems) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        problems.add(1, f"{len(data)} bytes, more than {MAX_BYTES}: shorten the file")
        return ""
    try:
        words = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(line, "a byte here is not UTF-8: save the file as UTF-8")
        return ""
    words = words.replace("\r\n", "\n").replace("\r", "\n")
    for match in _UNREADABLE.finditer(words):
        line = words.count("\n", 0, match.start()) + 1
        problems.add(line, f"the invisible character U+{ord(match[0]):04X}: remove it")
    return words


def _explained(error: yaml.MarkedYAMLError, words: str) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, f"not valid YAML: {error.problem}"
    hints = {
        "@": "; leave the @ out or put the word in quotes",
        "`": "; put the word in quotes",
        "\t": "; indent with spaces",
    }
    hint = hints.get(words[mark.index : mark.index + 1], "")
    problem = " ".join(str(error.problem).split())
    return mark.line + 1, f"not valid YAML at column {mark.column + 1}: {problem}{hint}"


def _items(node: SequenceNode, problems: Problems) -> Iterator[tuple[Node, str]]:
    for item in node.value:
        if isinstance(item, ScalarNode):
            yield item, item.value
        else:
            problems.add(item, f"{describe_value(item)} stands where a word is expected: write a word")


def _refuse_none(node: Node, listed: list[tuple[Node, str]], problems: Problems) -> None:
    # An empty list could mean "none" or "no limit"; leaving the key out says what the docs say.
    nothing = isinstance(node, ScalarNode) or (isinstance(node, SequenceNode) and not node.value)
    if nothing and not listed:
        problems.add(node, "the list is empty: name at least one, or leave the key out")


def _plain(node: Node) -> str:
    return str(node.value) if isinstance(node, ScalarNode) and node.style is None else ""


def _problem(glob: str) -> str | None:
    """Return what is wrong with a glob."""
    if not _WRITABLE.fullmatch(glob) or glob != glob.strip():
        why = f"is no glob: write up to {LONGEST_GLOB} characters of a path, as in `src/**`"
    elif glob.startswith("#"):
        why = "is a comment in this notation: write `\\#` for a path that begins so"
    elif glob.startswith(("./", "../", "!./", "!../")):
        why = "matches no file: write the path from the top of the repository, as in `src/**`"
    elif "{" in glob:
        why = "has braces, which are no alternatives in this notation: write one glob for each"
    elif not _can_be_compiled(glob):
        why = "is no glob: write a path with * ? [] ** as wildcards"
    else:
        return None
    return f"{quote_word(glob)} {why}"


def _can_be_compiled(glob: str) -> bool:
    if glob in {"/", "!", "!/"} or "//" in glob or _NESTED_SET.search(glob):
        return False
    try:
        compile_globs((glob,))
    except (GitIgnorePatternError, re.error, re2.error):
        return False
    return True
