"""Rules: which files are refused, and does the pack that comes with the program find what it is for?"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bot.evidence.logs.parse.classify import find_winner, fixture_log
from bot.evidence.logs.parse.rulesets import shipped_rules
from bot.evidence.logs.parse.stored_log import PlainLog

FIXTURES = Path(__file__).parent / "fixtures"
SHIPPED = Path(__file__).parents[3] / "config" / "log_rules.toml"


def rule(**keys):
    return "[[rule]]\n" + "".join(f"{key} = '''{value}'''\n" for key, value in keys.items())


FINE = rule(name="fine", pattern="^fine$")
WRONG = {
    "look-ahead": (
        rule(name="ahead", pattern="a(?=b)"),
        ["rule 1 'ahead': RE2 cannot use the pattern", "(?="],
    ),
    "back-reference": (FINE + rule(name="back", pattern=r"(a)\1"), ["rule 2 'back': RE2 cannot use"]),
    "empty": (rule(name="empty", pattern="a*"), ["rule 1 'empty'", "matches the empty string"]),
    "long": (rule(name="long", pattern="a" * 2049), ["rule 1 'long'", "2,049 bytes, at most 2,048"]),
    "large": (rule(name="large", pattern=r"(?:\pL{100}){10}"), ["rule 1 'large'", "too large"]),
    "many": (FINE * 501, ["501 rules, at most 500"]),
    "large together": (
        "".join(rule(name=f"r{n}", pattern=f"x{n}[ab]{{900}}[cd]{{900}}") for n in range(500)),
        ["the patterns are too large together"],
    ),
    "no pattern": (rule(name="none"), ["rule 1 'none': pattern is missing"]),
    "no name": (rule(pattern="x"), ["rule 1: name is missing"]),
    "kind": (rule(name="kind", pattern="x", kind="bad"), ["rule 1 'kind': kind is one of infra, build"]),
    "hint": (rule(name="hint", pattern="x", hint="javascript:alert(1)"), ["hint is an http(s) address"]),
    "repos": (rule(name="repos", pattern="x", repos="org/npu"), ["repos is a list"]),
    "unknown": (rule(name="typo", patern="x", pattern="x"), ["unknown key 'patern'"]),
    "no table": ("rule = 3", ["[[rule]] is a list of tables"]),
    "not TOML": ("[[rule", ["not valid TOML"]),
    "section": ("[[section]]\nstart = 'x'", ["section 1: stop is missing"]),
    "ignore": ("[[ignore]]\npattern = '('", ["ignore 1: RE2 cannot use"]),
    "surrogate": ('[[rule]]\nname = "r"\npattern = "\\ud800"', ["not valid TOML"]),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_named_with_rule_and_reason(ootbot, tmp_path, text, words):
    (tmp_path / "rules.toml").write_text(text)
    (tmp_path / "log").write_text("x\n")
    code, out, err = ootbot("logs", "explain", tmp_path / "log", "--rules", tmp_path / "rules.toml")
    assert (code, out) == (2, "")
    assert str(tmp_path / "rules.toml") in err
    for word in words:
        assert word in err
    assert "Traceback" not in err


def test_at_the_limits_a_file_is_fine(explain):
    assert explain("a\n", FINE * 500)["verdicts"] == []
    assert explain("a\n", rule(name="long", pattern="a" * 2048))["verdicts"] == []


def test_everything_that_is_wrong_is_said_at_once(ootbot, tmp_path):
    (tmp_path / "rules.toml").write_text(rule(name="one", pattern="(") + rule(name="two", pattern="a*"))
    _, _, err = ootbot("logs", "test", tmp_path, "--rules", tmp_path / "rules.toml")
    assert "'one'" in err
    assert "'two'" in err


def test_a_file_of_names_and_patterns_alone_gets_kinds_by_name(explain):
    names = {
        "pytest failure": "test",
        "GHA timeout": "timeout",
        "CUDA out of memory error": "oom",
        "x": "generic",
    }
    names |= {
        "Compile error": "build",
        "flake8 error": "lint",
        "Docker error": "infra",
        "GHA was cancelled": "cancel",
    }
    for name, kind in names.items():
        assert explain("alpha\n", rule(name=name, pattern="alpha"))["verdicts"][0]["kind"] == kind


def test_every_rule_of_the_pack_has_a_fixture_that_only_it_wins(ootbot):
    code, out, _ = ootbot("logs", "test", FIXTURES)
    assert code == 0, out
    pack = shipped_rules()
    logs = [PlainLog.of(fixture_log(path.read_bytes())) for path in FIXTURES.iterdir()]
    won = {find_winner(log, pack).rule.name for log in logs}
    rules = tomllib.loads(SHIPPED.read_text())["rule"]
    assert won == {one["name"] for one in rules}
    assert len(won) == len(rules)


def test_a_log_of_success_has_no_verdict(explain):
    log = "Run make\n0 errors, 0 failures\nFAILED tests: 0\n100% tests passed, 0 tests failed out of 12\nOK\n"
    assert explain(log)["verdicts"] == []


UNCLASSIFIED_ELSEWHERE = {
    "FAILED tests/test_a.py::test_add - assert 3 == 4": ("test", ["tests/test_a.py::test_add"]),
    "FAILED tests/test_a.py::test_add[a b] - assert": ("test", ["tests/test_a.py::test_add[a b]"]),
    "E   AssertionError: assert 3 == 4": ("test", ["AssertionError: assert 3 == 4"]),
    "Segmentation fault (core dumped)": ("test", ["Segmentation fault"]),
    "make: *** [Makefile:12: all] Error 2": ("build", ["all"]),
    "error[E0382]: borrow of moved value": ("build", ["E0382", "borrow of moved value"]),
    "--- FAIL: TestAdd (0.00s)": ("test", ["TestAdd"]),
}


@pytest.mark.parametrize("line", UNCLASSIFIED_ELSEWHERE)
def test_lines_of_common_tools_are_known(explain, line):
    found = explain(f"2026-11-22T10:00:00.1234567Z {line}\n##[error]Process completed with exit code 1.\n")
    assert (found["verdicts"][0]["kind"], found["verdicts"][0]["captures"]) == UNCLASSIFIED_ELSEWHERE[line]
