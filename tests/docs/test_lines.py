"""Are the lines of documents short enough for a difference to be read? A sentence is a line, a long one several."""

import re

import pytest

from tests.docs.test_docs import FENCE, PAGES, SPAN, name

MOST = 140


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_line_of_prose_is_long(page):
    """Tables, code and the addresses of links are as long as they are."""
    prose = re.sub(r"\]\([^)\s]*\)", "]", SPAN.sub("", FENCE.sub("", page.read_text())))
    long = [line for line in prose.splitlines() if len(line) > MOST and not line.lstrip().startswith("|")]
    assert long == [], "begin a line with each sentence, and break long sentences where a part of them ends"
