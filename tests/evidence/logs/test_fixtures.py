"""Fixtures: does the mark stand where the rules put it, byte for byte?"""

from __future__ import annotations

import pytest

AT = "2026-11-22T10:00:00.1234567Z "
RULES = r"""
[[rule]]
name = 'groups'
pattern = '^alpha (\w+)(?: (\w+))?(x*)'
[[rule]]
name = 'whole'
pattern = 'beta \d'
"""
RENDERED = {
    "groups": (f"{AT}alpha one two!\n", f"#=MATCH=# {AT}alpha ‹one› ‹two››‹!\n"),
    "whole": ("so beta 1, so\n", "#=MATCH=# so ‹beta 1›, so\n"),
    "colours": (
        f"{AT}\x1b[31malpha \x1b[1mone\x1b[0m \x1b[4mtwo\x1b[0m.\n",
        f"#=MATCH=# {AT}\x1b[31malpha \x1b[1m‹one›\x1b[0m \x1b[4m‹two›\x1b[0m›‹.\n",
    ),
    "none": ("nothing\n", "nothing\n"),
    "source": ("#=SOURCE=# https://example.org/beta 1\nx\n", "#=SOURCE=# https://example.org/beta 1\nx\n"),
    "source and match": ("#=SOURCE=# u\nx\nbeta 1\n", "#=SOURCE=# u\nx\n#=MATCH=# ‹beta 1›\n"),
    "line ends": ("x\r\nbeta 1\r\ny", "x\r\n#=MATCH=# ‹beta 1›\r\ny"),
    "moved": ("#=MATCH=# ‹beta 1›\nbeta 2\n", "beta 1\n#=MATCH=# ‹beta 2›\n"),
    "wide characters": ("é beta 1 é\n", "#=MATCH=# é ‹beta 1› é\n"),
    "no line end": ("beta 1", "#=MATCH=# ‹beta 1›"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "fixtures").mkdir()
    return tmp_path / "fixtures"


@pytest.mark.parametrize(("plain", "marked"), RENDERED.values(), ids=RENDERED)
def test_a_blessed_fixture_marks_line_and_captures_and_passes(ootbot, folder, plain, marked):
    rules = folder.parent / "rules.toml"
    (folder / "one").write_bytes(plain.encode())
    code, out, _ = ootbot("logs", "test", folder, "--rules", rules)
    assert (code, out.splitlines()[-1]) == (
        (0, "1 passed, 0 failed") if plain == marked else (1, "0 passed, 1 failed")
    )
    code, out, _ = ootbot("logs", "test", folder, "--rules", rules, "--bless")
    assert (code, out.splitlines()[-1]) == (0, "1 passed, 0 failed")
    assert (folder / "one").read_bytes().decode() == marked
    assert ootbot("logs", "test", folder, "--rules", rules)[0] == 0


def test_every_plain_file_counts_but_dotfiles(ootbot, folder):
    (folder / "a.txt").write_text("x\n")
    (folder / "b.log").write_text("beta 1\n")
    (folder / ".hidden").write_text("beta 1\n")
    (folder / "sub").mkdir()
    code, out, _ = ootbot("logs", "test", folder, "--rules", folder.parent / "rules.toml")
    assert code == 1
    assert out.splitlines()[-1] == "1 passed, 1 failed"
    assert "b.log:\n  marked: (no verdict)\n  found:  #=MATCH=# ‹beta 1›" in out


def test_a_fixture_that_is_no_text_fails_by_name(ootbot, folder):
    (folder / "binary").write_bytes(b"\xff\n")
    code, out, _ = ootbot("logs", "test", folder)
    assert code == 1
    assert "binary: it is not UTF-8" in out
