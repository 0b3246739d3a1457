"""Text from outside stays text, wherever it is put: in answers, in logs, in keys of objects."""

import json
import re
import subprocess
import sys
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.core import escaping
from bot.db.exports import json_line, object_key, repo_key
from tests.oot.publish import injections
from tests.oot.publish.rendered import complaints, see

ANYTHING = st.text(st.characters(codec=None), max_size=200) | st.text(
    st.sampled_from("`|@#<>!-/[]()*_~$\\&;:.w\n\r\t \u200b\u202e\ud800aA1f"), max_size=60
)


def page_with(word: str) -> str:
    """Every shape in which a word can stand."""
    return "\n\n".join(
        [
            f"Text {escaping.text(word)}, code {escaping.code(word)}.",
            escaping.text(word),
            escaping.code(word),
            f"- **{escaping.code(word)}** {escaping.text(word)}",
            f"| A | B |\n|---|---|\n| {escaping.code(word)} | {escaping.text(word)} |\n| x | y |",
            f"<details>\n<summary>{escaping.html_code(word)} {escaping.html_text(word)}</summary>\n",
            escaping.fence(word),
            "</details>",
            escaping.link("log", word),
        ]
    )


@pytest.mark.parametrize("word", injections.ALL, ids=injections.short)
def test_no_injection_does_anything_in_any_place(word):
    page = page_with(word)
    assert complaints(page) == []
    plain = page_with("word" if escaping.one_line(word) else "")
    assert [tag for tag in see(page).tags if tag != "a"] == see(plain).tags


@given(ANYTHING)
def test_random_text_does_nothing_in_any_place(word):
    page = page_with(word)
    assert complaints(page) == []
    page.encode("utf-8")


@given(ANYTHING)
def test_a_title_is_one_visible_line(word):
    line = escaping.title(word)
    assert line.strip()
    assert len(line) <= escaping.TITLE_LIMIT
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("tests/ops.py::test_add[cpu-1]", "tests/ops.py::test_add[cpu-1]"),
        ("a`b", "a`b"),
        ("`a`", "`a`"),
        ("a | b", "a | b"),
        ("a\\|b", "a\\|b"),
        ("two\nlines", "two lines"),
        ("日本語のテスト", "日本語のテスト"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\u202eevil", "evil"),
        ("", escaping.NAMELESS),
        ("\u200b", escaping.NAMELESS),
        ("broken \ud800", "broken \ufffd"),
    ],
)
@pytest.mark.parametrize("place", ["{}", "| {} | y |\n|---|---|\n| {} | y |"], ids=["line", "cell"])
def test_a_name_reads_as_it_was_given(word, shown, place):
    html = see_html(place.replace("{}", escaping.code(word)))
    assert f"<code>{shown}</code>" in html


def see_html(markdown: str) -> str:
    """The rendered document, its entities resolved as an eye would."""
    return unescape(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))


@pytest.mark.parametrize("word", ["5 of 7 tests < 3 & more", "a*b*c_d_", "1. first", "[x](y)", "a|b"])
def test_a_sentence_reads_as_it_was_given(word):
    assert see_html(escaping.text(word)) == f"<p>{word}</p>\n"


def test_a_mention_is_broken_even_in_code_because_mail_shows_the_source():
    for shape in (
        escaping.text,
        escaping.code,
        escaping.html_code,
        escaping.html_text,
        escaping.fence,
        escaping.title,
    ):
        assert "@octocat" not in shape("@octocat")
        assert "@\u200boctocat" in shape("@octocat")


@pytest.mark.parametrize(
    ("given_url", "used"),
    [
        ("https://ci.example/run/1?a=1&b=2#job", "https://ci.example/run/1?a=1&b=2#job"),
        ("http://127.0.0.1:8080/oot", "http://127.0.0.1:8080/oot"),
        ("http://[::1]:8080/oot", "http://[::1]:8080/oot"),
        ("https://ci.example/a(b)|c`d", "https://ci.example/a%28b%29%7Cc%60d"),
        ("https://ci.example/%20x", "https://ci.example/%20x"),
        ("https://ci.example/action@v1", "https://ci.example/action%40v1"),
        ("https://ci.example/ü", "https://ci.example/%C3%BC"),
        ("https://ci.example/&lt;", "https://ci.example/&lt%3B"),
        ("https://ci.example/" + "x" * 1_981, "https://ci.example/" + "x" * 1_981),
        ("https://ci.example/" + "x" * 1_982, None),
        ("https://alice:secret@ci.example/", None),
        ("https://ci.example/a b", None),
        (" https://ci.example/", None),
        ("https://ci.example/\n", None),
        ("https://ci.example:port/", None),
        ("ci.example", None),
        ("javascript:alert(1)", None),
        ("", None),
        (None, None),
    ],
)
def test_only_plain_web_addresses_become_links(given_url, used):
    assert escaping.url(given_url) == used


@given(ANYTHING | ANYTHING.map(lambda tail: f"https://ci.example/{tail}"))
def test_a_link_goes_where_the_address_says_under_our_label(address):
    seen = see(f"before {escaping.link('log', address)} after")
    usable = escaping.url(address)
    assert [label for label, _ in seen.links] == (["log"] if usable else [])
    assert all(re.match(r"https?://", href) for _, href in seen.links)


def test_cut_markdown_says_how_much_is_missing_and_where_it_is():
    whole = "\n".join(f"- line {number}" for number in range(1_000))
    kept = escaping.cut(whole, 2_000, all_of_it="https://hud.example/x")
    told = re.search(r"Cut to fit: ([\d,]+) of ([\d,]+) bytes", kept).groups()
    missing, total = (int(number.replace(",", "")) for number in told)
    assert len(kept.encode()) <= 2_000
    assert total == len(whole)
    assert whole[: total - missing] == kept.partition("\n\nCut")[0] + "\n"
    assert "[All of it is here](https://hud.example/x)" in kept


def test_a_notice_stays_readable_when_a_code_block_was_cut():
    whole = "  " + "\n  ".join(escaping.fence("x ```` y\n" * 1_000, limit=9_000).split("\n"))
    kept = escaping.cut(f"- item\n\n{whole}", 1_000, all_of_it=None)
    assert len(kept.encode()) <= 1_000
    assert "Cut to fit" in " ".join(see(kept).prose)


def test_what_fits_is_not_cut():
    assert escaping.cut("ü" * 10, 20, all_of_it=None) == "ü" * 10


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("workflow_job", "org", 7), "workflow_job/org/7"),
        (("..", "x"), "%2E%2E/x"),
        ((".", ""), "%2E/%00"),
        (("a/../b",), "a%2F..%2Fb"),
        (("a b\n\0",), "a%20b%0A%00"),
        (("ä",), "%C3%A4"),
    ],
)
def test_no_part_of_a_key_leads_out_of_its_place(parts, key):
    assert object_key(*parts) == key


def test_long_parts_are_cut_and_still_differ():
    one, other = object_key("x" * 300 + "1"), object_key("x" * 300 + "2")
    assert one != other
    assert len(one) == len(other) == 200


def test_a_repository_is_two_parts():
    assert repo_key("org/name") == "org/name"
    assert repo_key("nothing") == "nothing/%00"


def test_numbers_that_json_has_not_are_texts():
    line = json_line({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": -float("inf")}})
    assert json.loads(line) == {"a": "nan", "b": ["inf", 1.5], "c": {"d": "-inf"}}


PROGRAM = """
import sys, structlog
from bot.core.log_output import configure
configure(fmt=sys.argv[1], level="info")
def fails(held):
    raise ValueError("no such thing")
try:
    fails("what only a variable holds")
except ValueError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.parametrize("fmt", ["console", "json"])
def test_it_shows_where_and_why_but_not_what_variables_hold(fmt):
    done = subprocess.run([sys.executable, "-c", PROGRAM, fmt], capture_output=True, text=True, check=True)
    assert "in fails" in done.stderr
    assert "ValueError: no such thing" in done.stderr
    assert "variable holds" not in done.stderr
