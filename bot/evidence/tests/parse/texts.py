"""Texts of reports: times, lengths, files, suites and properties, and the names that a test is known by."""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bot.core.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME_MOST = 512  # characters
LONGEST_TIME = 7 * 24 * 3600  # seconds: more is a wrong clock
MESSAGE_MOST = 1024  # bytes
STACK_MOST = 4096
OUTPUT_MOST = 2048
LINE_DIGITS = 9
WHOLE_LOG_MOST = 4096  # where the output is all there is
_ELLIPSIS = "\n…\n"
FILE_MOST = 500  # characters
# names of files, which some producers write as class names
_SOURCE = re.compile(
    r"[^\s]\.(?:[cm]?[jt]sx?|c|cc|cpp|cxx|h|hpp|cs|dart|exs?|feature|go|groovy|java|kts?|lua|php|py|rb|rs|bats|sh|swift|vue)$"
)
_TEST_MODULE = re.compile(r"test_\w+|\w+_test")
_NO_MODULE = re.compile(r"[/:\\\s]")  # names of Go packages and Rust binaries have these
DIGEST = 16  # bytes
SHOWN = 16  # hex digits of it, in addresses
DEVICE = "{device}"
# more come from the allowlist
DEVICES = frozenset(
    ["cpu", "cuda", "xpu", "mps", "rocm", "hip", "npu", "hpu", "mlu", "musa", "gcu", "meta", "privateuse1"]
)
# words of a name: between separators, and between lower and upper case
_WORD = re.compile(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[a-z]+[0-9]*|[0-9]+|[^A-Za-z0-9]+")
PROPERTIES_OF_REPORT = 40  # flags, and as many properties
PROPERTIES_OF_CASE = 20
PROPERTY_NAME_MOST = 100  # bytes
PROPERTY_VALUE_MOST = 200
HIDDEN_VALUE = "(not kept)"
# flags are environment variables: a value under such a name is likely to be a credential
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY", re.IGNORECASE)


class SourcePlace(NamedTuple):
    """The file a test is defined in, its suite, and the file that launched it; empty if unknown."""

    file: str
    suite: str
    invoking_file: str = ""


def milliseconds(text: str | None) -> int | None:
    """Convert seconds to milliseconds; None if the time is missing, not a number, negative or over a week."""
    seconds = _seconds(text)
    if seconds is None or not 0 <= seconds <= LONGEST_TIME:
        return None
    return round(seconds * 1000)


def line_number(text: str, *, from_zero: bool) -> int | None:
    """Parse a line number, counted from 1; None if it is not a number. pytest counts from 0."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LINE_DIGITS):
        return None
    return int(text) + from_zero or None


def is_too_long(text: str | None) -> bool:
    """Whether a time is a number that no test can have taken."""
    seconds = _seconds(text)
    return seconds is not None and not math.isnan(seconds) and seconds > LONGEST_TIME


def short_name(text: str) -> str:
    """Shorten a very long name of a test, suite or file to its beginning and a digest of all of it."""
    if len(text) <= NAME_MOST:
        return text
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{text[:NAME_MOST]}… {digest}"


def beginning(text: str, most: int) -> str:
    """Return the beginning of a text, at most `most` bytes of UTF-8."""
    if len(text) * 4 <= most:
        return text
    return text[:most].encode(errors="replace")[:most].decode(errors="ignore")


def ending(text: str, most: int) -> str:
    """Return the end of a text, at most `most` bytes of UTF-8."""
    if len(text) * 4 <= most:
        return text
    return text[-most:].encode(errors="replace")[-most:].decode(errors="ignore")


class KeptText:
    """The beginning and the end of a text that comes in pieces; the middle is dropped."""

    __slots__ = ("_head", "_size", "_tail")

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._size = 0  # characters in all

    def add(self, piece: str) -> None:
        """Add the next piece."""
        self._size += len(piece)
        if (missing := STACK_MOST - len(self._head)) > 0:
            self._head += piece[:missing]
            piece = piece[missing:]
        if piece:
            self._tail = (self._tail + piece[-STACK_MOST:])[-STACK_MOST:]

    def both(self, most: int) -> str:
        """Return the text, or its beginning and end around an ellipsis."""
        whole = self._head + self._tail
        if self._size == len(whole) and len(whole.encode(errors="replace")) <= most:
            return mask(whole).strip()
        half = (most - len(_ELLIPSIS.encode())) // 2
        return beginning(mask(self._head), half) + _ELLIPSIS + ending(mask(whole), half)

    def tail(self, most: int) -> str:
        """Return the end of the text."""
        return ending(mask(self._head + self._tail), most).strip()

    def beginning(self) -> str:
        """Return the beginning of the text."""
        return mask(self._head)


def place_of_case(file: str, classname: str, *, pytest: bool) -> SourcePlace:
    """Return the place of a case; a file that the report names always wins, and none is invented.

    A class is one in a file of Python only where pytest says so, or where its module is called as tests are.
    """
    if file:
        return SourcePlace(short_name(file), short_name(classname))
    if _SOURCE.search(classname) and not pytest:
        return SourcePlace(short_name(classname), "")
    parts = classname.split(".")
    if "." not in classname or _NO_MODULE.search(classname) or not all(parts):
        return SourcePlace("", short_name(classname))
    if parts[0] == "test":
        parts = parts[1:]
    first_class = next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts))
    if pytest and first_class > 0:
        return _in_python(parts[:first_class], parts[first_class:])
    if len(parts) > 1 and _TEST_MODULE.fullmatch(parts[-2]):
        return _in_python(parts[:-1], parts[-1:])
    return SourcePlace("", short_name(parts[0] if len(parts) == 1 else classname))


def without_ending(file: str) -> str:
    """Return a test file's name as exclusions and launchers write it."""
    return file[:FILE_MOST].replace("\0", "").removeprefix("test/").removesuffix(".py")


def invoking_file(path: str) -> str:
    """Return the file that launched a report's tests, from its folder below `test-reports`."""
    folders = path.replace("\\", "/").split("/")[:-1]
    if "test-reports" not in folders[:-1]:
        return ""
    return short_name(folders[-1].replace(".", "/"))


def digest(file: str, suite: str, name: str) -> bytes:
    """Return the digest that identifies a test within its repository."""
    return hashlib.sha256(f"{file}\0{suite}\0{name}".encode("utf-8", "replace")).digest()[:DIGEST]


def shown_digest(of: bytes) -> str:
    """Return a digest as addresses show it."""
    return of.hex()[:SHOWN]


def canonical(file: str, suite: str, name: str, *, devices: Iterable[str] = DEVICES) -> int:
    """Return a signed 64-bit number that is the same for the same test on every device.

    `name` is the declared name where a report has it; `devices` are lower-case words.
    """
    words = frozenset(devices)
    text = f"{file}\0{without_device(suite, words)}\0{without_device(name, words)}"
    hashed = hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8]
    return int.from_bytes(hashed, "big", signed=True)


def without_device(text: str, devices: frozenset[str]) -> str:
    """Return a name with its device words replaced."""
    lowered = text.lower()
    if not any(device in lowered for device in devices):
        return text
    return _WORD.sub(lambda word: DEVICE if word[0].lower() in devices else word[0], text)


def kept_properties(given: Mapping[str, Any] | None, most: int) -> dict[str, str]:
    """Return at most `most` entries by name, as short texts; other than texts, numbers and booleans become JSON."""
    names = sorted(name for name in given or {} if name.strip())[:most]
    return {
        _short_property(name, PROPERTY_NAME_MOST): _property_value(name, (given or {})[name])
        for name in names
    }


def _seconds(text: str | None) -> float | None:
    """Parse a number with a decimal point or comma, and thousands separators."""
    if not text or "_" in text:
        return None
    if "," in text:
        whole, _, fraction = text.rpartition(".")
        if whole and "," in whole:  # 1,234.5
            text = f"{whole.replace(',', '')}.{fraction}"
        elif text.count(",") == 1:  # 0,014 and 1.234,5
            text = text.replace(".", "").replace(",", ".")
        else:  # 1,234,567
            text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _in_python(modules: list[str], classes: list[str]) -> SourcePlace:
    return SourcePlace(short_name("/".join(modules) + ".py"), short_name(".".join(classes)))


def _property_value(name: str, value: Any) -> str:
    if _SECRET.search(name):
        return HIDDEN_VALUE
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _short_property(text, PROPERTY_VALUE_MOST)


def _short_property(text: str, most: int) -> str:
    return beginning(mask(text).replace("\0", "\N{REPLACEMENT CHARACTER}"), most)
