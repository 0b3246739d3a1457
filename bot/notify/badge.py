"""Badges: a small SVG with two words, as READMEs show it."""

from __future__ import annotations

from html import escape

from bot.core.escaping import one_line, shorten

COLOURS = {"good": "#2b7a3d", "warn": "#8a5a00", "bad": "#b3261e", "wait": "#40576b", "idle": "#5c6166"}
HEIGHT, PADDING = 20, 6
MOST = 40  # characters of a part
NARROW, WIDE = frozenset("fijlrt.,:;!|'()[]{}/ -"), frozenset("mwMW%@")
UNKNOWN = "unknown"


def draw_badge(label: str, message: str, tone: str) -> str:
    """Return a badge; both texts may come from outside."""
    label, message = (shorten(one_line(text), MOST) for text in (label, message))
    left, right = _width(label) + 2 * PADDING, _width(message) + 2 * PADDING
    whole, title = left + right, escape(f"{label}: {message}")
    texts = "".join(
        f'<text x="{at}" y="14" textLength="{width - 2 * PADDING}">{escape(text)}</text>'
        for at, width, text in ((PADDING, left, label), (left + PADDING, right, message))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{whole}" height="{HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{HEIGHT}" fill="#3a3f44"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{COLOURS[tone]}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>'
    )


def _width(text: str) -> int:
    """Return about how many pixels a text takes; it is drawn with exactly these."""
    return round(sum(4.2 if letter in NARROW else 10 if letter in WIDE else 7 for letter in text)) or 1
