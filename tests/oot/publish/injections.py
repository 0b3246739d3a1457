"""Hostile names, messages and URLs, by what they try to inject."""

MENTIONS = [
    "@octocat", "@org/team", "hello @octocat, look", "(@octocat)", "[@octocat]", "`@octocat`",
    "``@octocat``", "`` ` `` @octocat", "x` @octocat `y", "\\@octocat", "\\`@octocat\\`",
    "&#64;octocat", "&commat;octocat", "@\u200boctocat", "@\u2060octocat", "@\u00adoctocat",
    "@\x00octocat", "@\x1b[0moctocat", "\u202e@octocat", "a@octocat", "octocat@example.com",
    "mailto:octocat@example.com", "xmpp:octocat@example.com/home", "<octocat@example.com>",
    "*@octocat*", "**@octocat**", "~~@octocat~~", "|@octocat|", "\n@octocat\n", "\r@octocat",
    "\u2028@octocat", "@octocat" * 40, "@@octocat", "@-octocat", "@ octocat", "@oct\u200bocat",
]  # fmt: skip

LINKS = [
    "https://evil.example/", "http://evil.example", "HTTP://EVIL.EXAMPLE/", "www.evil.example",
    "WWW.evil.example", "ftp://evil.example/x", "see https://evil.example, now",
    "(https://evil.example)", "<https://evil.example>", "[click](https://evil.example)",
    "[click][ref]\n\n[ref]: https://evil.example", "![pixel](https://evil.example/p.png)",
    "[![x](https://evil.example/p.png)](https://evil.example)", "](https://evil.example)",
    "x](https://evil.example) [y", "[x](javascript:alert(1))", "[x](<https://evil.example/a b>)",
    "`[x`](https://evil.example)", "[^1]\n\n[^1]: footnote", "#123", "fixes #1", "closes: #1", "GH-123",
    "gh-1", "octo/core#1", "octo/core@0123abcd", "octo@0123abcd4567",
    "0123abcd4567ef890123abcd4567ef890123abcd", "0123abc", "GHSA-aaaa-bbbb-cccc", "CVE-2024-12345",
    "JIRA-7", "https\u200b://evil.example", "w\u200bww.evil.example", "#\u200b1",
    "https:/\x00/evil.example", "https&colon;//evil.example", "https&#58;//evil.example",
    "www&period;evil.example", "//evil.example", "git@evil.example:x.git", "[[wiki]]", ":tada:",
]  # fmt: skip

HTML = [
    "<b>bold</b>", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "<a href=https://evil.example>x</a>", "<a href='https://evil.example'>x</a>", "</a>", "</details>",
    "</summary>", "<details>", "<details open><summary>x</summary>", "</details></details></details>",
    "</code></pre></td></tr></table>", "</code>", "</p></div>", "<table><tr><td>", "<br>", "<br/>",
    "<hr>", "<h1>x</h1>", "<!-- x -->", "<!--", "-->", "<!-->", "<!--->", "--!>",
    "<!-- ootbot:summary -->", "\n<!-- ootbot:summary -->\n", "`<!-- ootbot:summary -->`",
    "<\u200b!-- ootbot:summary -->", "<!\x00-- ootbot:summary -->", "&lt;!-- ootbot:summary --&gt;",
    "<![CDATA[x]]>", "<!DOCTYPE html>", "<?php x ?>", "<style>*{display:none}</style>",
    "<svg onload=alert(1)>", "<input type=checkbox>", "<textarea>", "<plaintext>", "<x-y>", "<\n b>",
    "&lt;b&gt;", "&amp;lt;", "&#x3c;b&#x3e;", '" onmouseover="x', "' onmouseover='x",
]  # fmt: skip

MARKDOWN = [
    "`", "``", "```", "````\n</details>\n````", "```\n# out\n```", "~~~\n# out\n~~~", "  ```",
    "x\n```\n@octocat\n```", "`" * 50, "a`b``c```d", "`a", "a`", " `a` ", "\\", "\\\\", "a\\", "\\`",
    "\\|", "|", "||", "a|b|c", "a \\| b", "a\\\\|b", "`a|b`", "| a | b |\n|---|---|\n| c | d |",
    "|---|---|", "a\nb", "a\r\nb", "a\r\n\r\nb", "a\x0bb\x0cc", "a\x85b", "a\u2028b\u2029c",
    "# heading", "heading\n===", "heading\n---", "---", "***", "* item", "- item", "+ item",
    "- [ ] task", "1. item", "1) item", "> quote", "    indented", "\tindented",
    "*em* _em_ **strong** __strong__", "~~gone~~ ~gone~", "$x$ $$y$$", "$`x`$",
    "[x]: https://evil.example", "[!WARNING]", "> [!WARNING]\n> x", "===", ":---:", "{{ x }} {% x %}",
    "%s %d {0}",
]  # fmt: skip

UNSEEN = [
    "", " ", "\n\n\n", "\u200b", "\u3164", "\u00a0", "\ufeff", "\u202eabc\u202c", "\u2066abc\u2069",
    "a\u202db", "\u061cabc", "\u200fabc", "\x00", "a\x00b", "\x07\x08\x1b", "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://evil.example\x07x\x1b]8;;\x07", "\x9b31mred", "\x7f", "\ud800", "a\udfffb",
    "\udc00\ud800", "\ufffe\uffff", "".join(chr(0xE0000 + ord(letter)) for letter in "ignore this"),
    "a\U000e0001b", "x\ufe00y\U000e0100z", "pass\u200bed", "\u034f\u115f\u1160\u17b4\u180e",
    "e" + "\u0301" * 300, "👩\u200d💻", "نام\u200cها", "日本語のテスト", "Проверка", "בדיקה", "A" * 5_000,
    "あ" * 5_000, "😀" * 5_000, "\n" * 3_000, "`" * 3_000, "|" * 3_000,
]  # fmt: skip

URLS = [
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,<b>x</b>", "file:///etc/passwd",
    "https://user:secret@evil.example/", "https://user@evil.example/", "https://@evil.example/",
    "https://ok.example\\@evil.example/", "https://ok.example/)[x](https://evil.example",
    'https://ok.example/ "title"', "https://ok.example/<b>", "https://ok.example/`x`",
    "https://ok.example/|x|", "https://ok.example/\nx", "https://ok.example/\u202ex",
    "https://ok.example/\x00", "https://ok.example/@octocat", "https://ok.example/&lt;b&gt;",
    "https://ok.example/$x$", "https://ok.example/*x*_y_~~z~~", "https://ok.example:99999/",
    "https://[::1/", "https://", "http:/ok.example", "//ok.example/x", "https://öäü.example/",
    "https://ok.example/" + "x" * 3_000, "https://ok.example/" + "ü" * 1_900, "https://ok.example/-->",
    "https://ok.example/?a=1&b=2#c",
]  # fmt: skip

ALL = [*MENTIONS, *LINKS, *HTML, *MARKDOWN, *UNSEEN, *URLS]


def short(word: object) -> str:
    """A name of a test case that a terminal can show."""
    return ascii(word[:40] if isinstance(word, str) else word)
