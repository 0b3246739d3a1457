"""Atom feeds (RFC 4287) of notices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from bot.core.escaping import one_line
from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.notify.tables import NoticeRow

ATOM = "http://www.w3.org/2005/Atom"
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
BEGINNING = 0  # epoch milliseconds: a feed without entries was never updated
ET.register_namespace("", ATOM)


def make_feed(notices: Sequence[NoticeRow], *, title: str, url: str, address: str, page: str) -> bytes:
    """Return a feed of notices, newest first: `address` is its own path, `page` that of what it is about."""
    feed = ET.Element(f"{{{ATOM}}}feed")
    _add(feed, "title", title)
    _add(feed, "id", f"{url}{address}")
    _add(feed, "updated", iso_time(max((one["at"] for one in notices), default=BEGINNING)))
    _link(feed, "self", f"{url}{address}")
    _link(feed, "alternate", f"{url}{page}")
    author = ET.SubElement(feed, f"{{{ATOM}}}author")
    _add(author, "name", "ootbot")
    for one in notices:
        _add_entry(feed, one, url)
    text: str = ET.tostring(feed, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'.encode()


def _add_entry(feed: ET.Element, notice: NoticeRow, url: str) -> None:
    entry = ET.SubElement(feed, f"{{{ATOM}}}entry")
    _add(entry, "title", notice["heading"])
    _add(entry, "id", f"urn:uuid:{notice['id']}")
    _add(entry, "published", iso_time(notice["at"]))
    _add(entry, "updated", iso_time(notice["at"]))
    _link(entry, "alternate", f"{url}{notice['path']}")
    ET.SubElement(entry, f"{{{ATOM}}}category", {"term": notice["event"]})
    content = "\n".join(one_line(line) for line in notice["lines"])
    ET.SubElement(entry, f"{{{ATOM}}}content", {"type": "text"}).text = NOT_XML.sub("", content)


def _add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, f"{{{ATOM}}}{name}").text = NOT_XML.sub("", one_line(text))


def _link(parent: ET.Element, relation: str, address: str) -> None:
    ET.SubElement(parent, f"{{{ATOM}}}link", {"rel": relation, "href": NOT_XML.sub("", address)})
