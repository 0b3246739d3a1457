"""What do people see of a comment or a check's summary? GitHub's Markdown, made harmless."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

# What GitHub lets through, as far as bots write it. Everything else loses its tags.
TAGS = {
    "a", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p",
    "picture", "pre", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "summary",
    "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "ul", "var",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title"},
    "details": {"open"},
    "img": {"src", "alt", "title", "width", "height", "align"},
    "div": {"align"},
    "ol": {"start"},
    "p": {"align"},
    "td": {"align", "colspan", "rowspan", "style"},
    "th": {"align", "colspan", "rowspan", "style"},
}
MENTION = re.compile(r"(?<![\w/.@-])@([a-z\d](?:[a-z\d-]{0,37}[a-z\d])?)(?![\w-])", re.IGNORECASE)


def render(text: str) -> str:
    """Return Markdown as HTML that is safe to show: no scripts, styles, forms or HTML comments."""
    return nh3.clean(
        _parser().render(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes={"a": {"mention"}},
        filter_style_properties={"text-align"},
        url_schemes={"http", "https", "mailto"},
    )


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("text", _text)
    return parser


def _text(_: RendererHTML, tokens: Sequence[Token], index: int, __: OptionsDict, ___: EnvType) -> str:
    """Return plain text with the people it mentions linked, since they would be notified."""
    link = r'<a class="mention" href="/\1">@\1</a>'
    return MENTION.sub(link, escapeHtml(tokens[index].content))
