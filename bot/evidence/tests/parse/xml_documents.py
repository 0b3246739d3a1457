"""XML as it is written: mislabeled, with forbidden characters, several documents in a file; read in two passes."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from bot.evidence.collect.parse.contract import Broken, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PIECE = 1024 * 1024  # bytes given to expat at once: in small pieces, a long attribute takes quadratic time
TOKEN_MOST = 8 * 1024 * 1024  # bytes of one tag or comment
# where a piece is cut at the beginning of a document: expat copies what it is given, for each document again, and in
# smaller steps it looks at a long comment over and over
STEP = 64 * 1024
DOCUMENTS_MOST = 10_000  # of one file
REPAIRED = "repaired: it had characters that XML forbids, or bytes that are not of its encoding"
BEHIND = "there is text behind the last document"
_DECLARED = re.compile(rb"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"']")
_BEGINNING = re.compile(rb"<\?xml|<testsuites?[\s>/]")
# expat itself reads these; the others of this list are decoded before
_NATIVE = frozenset({"utf-8", "ascii", "iso8859-1"})
_DECODED = frozenset(
    [
        "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gbk", "gb2312", "gb18030", "hz", "big5", "big5hkscs", "cp950",
        "shift_jis", "shift_jis_2004", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "johab", "koi8-r", "koi8-u",
        "mac-roman", "mac-cyrillic", "tis-620", "cp437", "cp850", "cp852", "cp866", "cp874",
        *(f"iso8859-{number}" for number in range(2, 17)), *(f"cp125{number}" for number in range(9)),
    ]
)  # fmt: skip
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)
_INVALID = frozenset({
    expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN], expat.errors.codes[expat.errors.XML_ERROR_BAD_CHAR_REF],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
})  # fmt: skip
_JUNK = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]
_FORBIDDEN = re.compile(
    r"\x1b\[[0-9;]*[A-Za-z]|&#(?:27|x0*1[bB]);\[[0-9;]*[A-Za-z]"  # colours, whole
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
    r"|&#(?:0*(?:[0-8]|1[124-9]|2[0-9]|3[01])|[xX]0*(?:[0-8bBcCeEfF]|1[0-9a-fA-F]|[fF]{3}[eEfF]));"
)
_CUT = re.compile(r"(?:&[^;\s]{0,12}|\x1b(?:\[[0-9;]{0,12})?)$")  # may go on in the next piece
_BEGINNING_OF_NEXT = re.compile(rb"<\?xml")


class Unparsable(Exception):
    """The first pass found characters that XML forbids."""


def parse_documents(
    pieces: Callable[[], Iterable[bytes]], new_parser: Callable[[str | None], Any], begin: Callable[[], None]
) -> list[str]:
    """Parse all documents of a file; return what had to be done to read them.

    `new_parser` returns a parser for an encoding, `begin` has its handlers forget what they were told. Raises Broken
    and Refused.
    """
    try:
        return _Pass(new_parser, pieces(), repaired=False).run()
    except Unparsable:
        begin()
        return [REPAIRED, *_Pass(new_parser, pieces(), repaired=True).run()]


class _Pass:
    """One pass over all documents of a file."""

    def __init__(
        self, new_parser: Callable[[str | None], Any], pieces: Iterable[bytes], *, repaired: bool
    ) -> None:
        self._new_parser = new_parser
        self._pieces = pieces
        self._repaired = repaired
        self._parser: Any = None
        self._fed = 0  # bytes of the open document
        self._documents = 0

    def run(self) -> list[str]:
        """Parse the file; return notes about it."""
        notes: list[str] = []
        for piece in self._decoded():
            rest = memoryview(piece)
            while rest:
                rest = self._feed(rest)
                if self._parser is None and rest:
                    rest = rest[_next_document(rest) :]
                    if not rest and BEHIND not in notes:
                        notes.append(BEHIND)
        self._close()
        return notes

    def _feed(self, content: memoryview) -> memoryview:
        """Feed a piece to the parser; return what is left after the end of a document."""
        if self._parser is None:
            if self._documents >= DOCUMENTS_MOST:
                raise Refused(f"over {DOCUMENTS_MOST:,} documents in one file")
            self._parser, self._fed = self._new_parser(self._encoding), 0
            self._documents += 1
        following = _BEGINNING_OF_NEXT.search(content, STEP)
        part = content[: following.start()] if following else content
        parser, before = self._parser, self._fed
        try:
            parser.Parse(part, False)
        except expat.ExpatError as error:
            if error.code == _JUNK:
                self._parser = None
                return content[max(parser.ErrorByteIndex - before, 0) :]
            self._raise(error)
        except (LookupError, ValueError) as error:
            raise Broken(f"its encoding cannot be read: {error}") from None
        self._fed += len(part)
        if self._fed - parser.CurrentByteIndex > TOKEN_MOST + PIECE:
            raise Refused(f"a tag of over {TOKEN_MOST // PIECE} MiB")
        return content[len(part) :]

    def _close(self) -> None:
        if self._parser is None:
            if not self._documents:
                raise Broken("the file is empty")
            return
        try:
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            if error.code in _INVALID:
                self._raise(error)
            raise Broken(f"truncated at line {error.lineno}" if self._fed else "the file is empty") from None

    def _raise(self, error: expat.ExpatError) -> None:
        if error.code in _INVALID and not self._repaired:
            raise Unparsable from None
        raise Broken(f"line {error.lineno}: {expat.errors.messages[error.code]}") from None

    def _decoded(self) -> Iterator[bytes]:
        """Yield the bytes in even pieces, as UTF-8 if expat does not know the encoding or they need repair."""
        first = True
        decoder: codecs.IncrementalDecoder | None = None
        waiting = ""
        self._encoding: str | None = None
        for piece in _even(self._pieces):
            given = piece.lstrip() if first else piece
            if first:
                name = _encoding_of(given)
                if self._repaired or name not in _NATIVE | {""}:
                    self._encoding = "utf-8"
                    decoder = codecs.getincrementaldecoder(name or "utf-8")(errors="replace")
                elif name:
                    self._encoding = {"iso8859-1": "iso-8859-1", "ascii": "utf-8"}.get(name, name)
            first = False
            if decoder is None:
                yield given
                continue
            text = waiting + decoder.decode(given).removeprefix("\ufeff")
            waiting = ""
            if self._repaired:
                if cut := _CUT.search(text):
                    text, waiting = text[: cut.start()], text[cut.start() :]
                text = _FORBIDDEN.sub("", text)
            yield text.encode(errors="replace")
        if waiting:
            yield waiting.encode(errors="replace")


def _next_document(content: memoryview) -> int:
    start = _BEGINNING.search(content)
    return start.start() if start else len(content)


def _encoding_of(beginning: bytes) -> str:
    """Detect the encoding of a document from its beginning; empty if expat will find out. Raises Broken."""
    if beginning.startswith(_BOMS):
        return ""
    declared = _DECLARED.match(beginning)
    if not declared:
        return ""
    label = declared[1].decode("ascii")
    try:
        name = codecs.lookup(label).name
    except LookupError:
        raise Broken(f"its encoding cannot be read: {label!r} is unknown") from None
    if name.startswith(("utf-16", "utf-32")):  # the label of an editor: its bytes are those of ASCII
        return "utf-8"
    if name not in _NATIVE | _DECODED:
        raise Broken(f"its encoding cannot be read: {label!r}")
    return name


def _even(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at least 1 MiB, except the last."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
