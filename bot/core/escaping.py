"""Escaping of text from outside: inert Markdown, HTML, titles, URLs and links."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

NAMELESS = "(no name)"
NAME_LIMIT = 120  # characters of a name
PROSE_LIMIT = 300  # characters of a sentence
TITLE_LIMIT = 200  # characters of a check run's name or title
FENCE_LIMIT = 2_000  # characters of a message or stack trace
URL_LIMIT = 2_000  # characters, as long as anything opens

_ZWSP = "\u200b"  # zero-width space: breaks a mention or a link invisibly
_ELLIPSIS = "…"

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_NEWLINES = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0e\ufeff\uffa0"
    r"\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)  # controls, bidi, zero width, fillers, variation selectors but the emoji one, tags

_ACTIVE = re.compile(r"@(?=\w)|<(?=!--)")  # active even in code: mentions in e-mail, our marker
_LINKED = re.compile(  # what GitHub turns into a link in prose
    r"#(?=\d)|\bwww(?=\.)|:(?=//)|\b(?:mailto|xmpp)(?=:)|-(?=\d)|\bGHSA(?=-)"
    r"|[0-9a-f]{6}(?=[0-9a-f])",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"[\\`*_\[\]~$]")
_OPENING = re.compile(r"^(\d*)([-+=#:.)])")  # would start a list, heading or rule
_HTML_MARKUP = re.compile(r"[\\`*_\[\]~$|&<>\"']|:(?=//)|(?<=www)\.", re.IGNORECASE)
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r" *`{3,}")
_HOST = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")
_ENTITY = re.compile(r"&(#?\w+);")
MAX_LENGTH = 2000
_ENTERPRISE = "/api/v3"  # the API of a GitHub Enterprise Server; the others have a host for it


def clean(text: str) -> str:
    """Return the visible part of `text`: lines end in LF, no invisible characters, no colour codes."""
    if text.isascii() and text.isprintable():  # most are
        return text
    seen = _NEWLINES.sub("\n", _ANSI.sub("", text))
    return _UNSEEN.sub("", _SURROGATES.sub("\ufffd", seen))


def one_line(text: str) -> str:
    """Return cleaned `text` on one line, every run of white space as a single space."""
    return " ".join(clean(text).split())


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`; an ellipsis stands for the rest."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + _ELLIPSIS


def cut(markdown: str, max_bytes: int, *, all_of_it: str | None) -> str:
    """Return whole lines of our own Markdown within `max_bytes`, then how much is missing.

    A code block that is cut is closed again; `all_of_it` is the URL of the full text.
    """
    size = len(markdown.encode())
    if size <= max_bytes:
        return markdown
    available = max_bytes - len(_cut_notice(size, size, all_of_it).encode())
    kept, used, fence_line = [], 0, ""
    for line in markdown.split("\n"):
        still_open = _fence_after(line, fence_line)
        cost = len(line.encode()) + 1
        if used + cost + len(still_open) > available:
            break
        kept.append(line)
        used += cost
        fence_line = still_open
    closing = [fence_line] if fence_line else []
    return "\n".join([*kept, *closing]) + _cut_notice(size - used, size, all_of_it)


def title(text: str, *, limit: int = TITLE_LIMIT) -> str:
    """Return one line of plain text, for fields that GitHub does not render as Markdown."""
    return shorten(_calm(one_line(text)), limit) or NAMELESS


def code(text: str, *, limit: int = NAME_LIMIT) -> str:
    """Return a name as a code span, for running text and table cells alike."""
    word = title(text, limit=limit)
    if "|" in word:  # would end the cell, and its escape would be visible outside of one
        return html_code(text, limit=limit)
    ticks = _longer_than_any_run(word, at_least=1)
    pad = " " if "`" in (word[0], word[-1]) else ""
    return f"{ticks}{pad}{word}{pad}{ticks}"


def html_code(text: str, *, limit: int = NAME_LIMIT) -> str:
    """Return a name as a code element, for HTML lines, where backticks would be visible."""
    return f"<code>{_entities(title(text, limit=limit))}</code>"


def text(words: str, *, limit: int = PROSE_LIMIT) -> str:
    """Return a sentence as running text, for paragraphs, list items and table cells alike."""
    plain = html.escape(_break_links(shorten(one_line(words), limit)), quote=False)
    # functions, not templates: those are put together again for every text
    escaped = _MARKUP.sub(lambda match: f"\\{match[0]}", plain).replace("|", "&#124;")
    return _OPENING.sub(lambda match: f"{match[1]}\\{match[2]}", escaped)


def html_text(text: str) -> str:
    """Return a sentence as running text inside an HTML line."""
    return _entities(_break_links(shorten(one_line(text), PROSE_LIMIT)))


def fence(text: str, *, limit: int = FENCE_LIMIT) -> str:
    """Return a message of several lines as a code block that its content cannot close."""
    lines = _calm(shorten(clean(text).expandtabs(4).strip("\n"), limit)).split("\n")
    body = "\n".join(line.rstrip() for line in lines)
    ticks = _longer_than_any_run(body, at_least=3)
    return f"{ticks}\n{body}\n{ticks}"


def url(address: str | None) -> str | None:
    """Return an http or https URL, encoded for Markdown and HTML, else None.

    Also None for one with credentials, control characters or white space, an odd host, or too long.
    """
    return _url(address) if address and len(address) <= URL_LIMIT else None


def link(label: str, target: str | None) -> str:
    """Return a link in Markdown, or the label alone when the target is not a safe URL."""
    address = url(target)
    return f"[{text(label)}]({address})" if address else text(label)


def safe_url(text: str) -> str | None:
    """Return the URL when it is plain http(s) with a host, without credentials or control characters; else None."""
    if len(text) > MAX_LENGTH or not text.isprintable() or any(letter.isspace() for letter in text):
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or "\\" in text:
        return None
    return text


def is_enterprise_server(api_url: str) -> bool:
    """Whether this is the API of a GitHub Enterprise Server."""
    return api_url.endswith(_ENTERPRISE)


def web_url(api_url: str) -> str:
    """Return the address of a GitHub's pages: github.com, GitHub Enterprise Server, or with data residency."""
    if is_enterprise_server(api_url):
        return api_url.removesuffix(_ENTERPRISE)
    parts = urlsplit(api_url)
    return f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"


@lru_cache(1_000)  # the same ones are written into every version of a comment
def _url(address: str) -> str | None:
    if clean(address) != address or address.split() != [address]:
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    host = parts.netloc.removesuffix(f":{port}")
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        return None
    origin = f"{parts.scheme}://{parts.netloc}"
    rest = quote(address[len(origin) :], safe="/?#&=%+,;:!")
    safe = origin + _ENTITY.sub(r"&\1%3B", rest)
    return safe if len(safe) <= URL_LIMIT else None


def _calm(text: str) -> str:
    return _ACTIVE.sub(_broken, text)


def _break_links(text: str) -> str:
    return _LINKED.sub(_broken, _calm(text))


def _broken(match: re.Match[str]) -> str:
    return match[0] + _ZWSP


def _entities(text: str) -> str:
    return _HTML_MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)


def _longer_than_any_run(text: str, *, at_least: int) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    return "`" * max(at_least, longest + 1)


def _cut_notice(missing: int, size: int, all_of_it: str | None) -> str:
    where = f" {link('All of it is here', all_of_it)}." if url(all_of_it) else ""
    return f"\n\nCut to fit: {missing:,} of {size:,} bytes are left out.{where}"


def _fence_after(line: str, fence_line: str) -> str:
    """Return the line that closes the code block open after `line`, empty outside of one."""
    if fence_line:
        return "" if line == fence_line else fence_line
    return line if _FENCE.fullmatch(line) else ""
