"""Rules: which files are refused, and do they find the line that a person wants?"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bot.evidence.logs.parse.classify import find_winner, fixture_log
from bot.evidence.logs.parse.rulesets import shipped_rules
from bot.evidence.logs.parse.stored_log import PlainLog

FIXTURES = Path(__file__).parent / "fixtures"
SHIPPED = Path(__file__).parents[3] / "config" / "log_rules.toml"
UNCLASSIFIED_ELSEWHERE = {
    "FAILED tests/test_a.py::test_add - assert 3 == 4": ("test", ["tests/test_a.py::test_add"]),
    "FAILED tests/test_a.py::test_add[a b] - assert": ("test", ["tests/test_a.py::test_add[a b]"]),
    "E   AssertionError: assert 3 == 4": ("test", ["AssertionError: assert 3 == 4"]),
    "Segmentation fault (core dumped)": ("test", ["Segmentation fault"]),
    "make: *** [Makefile:12: all] Error 2": ("build", ["all"]),
    "error[E0382]: borrow of moved value": ("build", ["E0382", "borrow of moved value"]),
    "--- FAIL: TestAdd (0.00s)": ("test", ["TestAdd"]),
}
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
STAMP = "2026-09-21T10:00:00.1234567Z "
FAILED = "FAILED tests/test_greeting.py::test_hello - AssertionError: assert 2 == 3"
EXIT = "##[error]Process completed with exit code 1."
# what is around the line -> the line, counted from 1, and its kind
BELOW_TESTS = {
    "make": [FAILED, "make: *** [Makefile:12: test] Error 1"],
    "Gradle task": ["BasketTest > refusesToPay() FAILED", "> Task :shop:test FAILED"],
    "Gradle banner": ["BasketTest > refusesToPay() FAILED", "FAILURE: Build failed with an exception."],
    "npm lifecycle": [FAILED, "npm ERR! code ELIFECYCLE", "npm ERR! errno 1"],
    "Maven goal": [
        "[ERROR]   BasketTest.refusesToPay:33 expected:<2> but was:<3>",
        "[ERROR] Failed to execute goal org.example:plugin:3.2.5:test (default) on project shop: failures.",
    ],
    "linter that only reports": [FAILED, "./app/views.py:17:1: C901 'show' is too complex (22)"],
    "warning": [
        FAILED,
        "##[warning]Could not look for a newer version: API rate limit exceeded for 10.1.2.3",
    ],
    "clean-up of a container": [FAILED, "Error response from daemon: No such container: db-under-test"],
    "missing cache of an image": [
        FAILED,
        "#6 ERROR: importing cache manifest from registry.example.org/app:cache: manifest unknown",
    ],
    "reason of a test that was skipped": [
        FAILED,
        "SKIPPED [1] tests/test_ops.py:3: No CUDA GPUs are available",
    ],
    "memory in words": [FAILED, "INFO retrying after CUDA out of memory"],
    "detail of another tool": [FAILED, "    basket_test.go:12: expected 2"],
    "what could not be started": [FAILED, "  Failed to start the tracer"],
    "upload of metrics": [FAILED, "upload of metrics skipped: Unable to locate credentials"],
    "output of a test that passed": [
        FAILED,
        "tests/test_disk.py::test_message PASSED  # No space left on device",
    ],
    "checkout tried again": [
        FAILED,
        "##[error]fatal: unable to access 'https://git.example.org/o/r/': The requested URL returned error: 500",
    ],
}
PREFIXES = {
    "vLLM": "(EngineCore_DP0 pid=411) ERROR 05-01 10:00:00 [core.py:90] ",
    "Ray": "(train_fn pid=411, ip=10.0.0.1) ",
    "torchrun": "[rank0]: ",
    "Ant": "    [junit] ",
    "BuildKit": "#19 22.31 ",
    "docker compose": "test_1  | ",
    "Turborepo": "app:test: ",
    "task in brackets": "[backend:build:ci] ",
    "pnpm": "packages/app test: ",
    "time": "10:00:00.495 ",
    "date and time": "2026-09-21 10:00:00,495 ",
    "two times": "Sep 21 10:00:00 10:00:00.495 ",
    "gh run view": "test\tRun pytest\t2026-09-21T10:00:00.1234567Z ",
    "colours": "\x1b[0;36m(EngineCore_DP0 pid=411)\x1b[0;0m ",
}
KINDS = {
    "RuntimeError: call aclnnAdd failed, error code is 561103": "test",
    "EZ1001: [PID: 465] Tensor scale not implemented for DT_FLOAT16": "test",
    "EL0004: [PID: 465] Failed to allocate memory.": "infra",
    "FAILED tests/test_ops.py::test_add - RuntimeError: No CUDA GPUs are available": "infra",
    "RuntimeError: no ROCM devices found": "infra",
    "java.lang.OutOfMemoryError: Java heap space": "oom",
    "java.lang.IllegalStateException: the basket is closed": "test",
    "ERROR: failed to build: failed to solve: golang:1.27: unexpected status from HEAD request to "
    "https://registry.example.org/v2/golang/manifests/1.27: 502 Bad Gateway": "infra",
    "ERROR: failed to build: failed to solve: node:lts: no match for platform in manifest": "build",
}
NO_CAUSE = (
    "checking getaddrinfo bug... no",
    "JAVA_OPTS=-Xmx1g -XX:+HeapDumpOnOutOfMemoryError",
    "  AddressSanitizer: false",
)


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


@pytest.mark.parametrize("line", UNCLASSIFIED_ELSEWHERE)
def test_lines_of_common_tools_are_known(explain, line):
    found = explain(f"2026-11-22T10:00:00.1234567Z {line}\n##[error]Process completed with exit code 1.\n")
    assert (found["verdicts"][0]["kind"], found["verdicts"][0]["captures"]) == UNCLASSIFIED_ELSEWHERE[line]


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


def log(*lines):
    return "".join(f"{STAMP}{line}\n" for line in lines)


def verdict(explain, *lines):
    found = explain(log(*lines, EXIT))["verdicts"]
    return (found[0]["line_num"], found[0]["kind"], found[0]["rule"]) if found else None


@pytest.mark.parametrize("lines", BELOW_TESTS.values(), ids=BELOW_TESTS)
def test_a_failed_test_says_more_than_what_wraps_it_or_what_was_only_reported(explain, lines):
    for order in (lines, lines[::-1]):
        assert verdict(explain, *order)[:2] == (order.index(lines[0]) + 1, "test")


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_what_a_process_puts_in_front_of_a_line_is_cut(explain, prefix):
    found = explain(log("collected 12 items", prefix + FAILED, EXIT))["verdicts"][0]
    assert (found["rule"], found["line_num"], found["line"]) == ("pytest failure", 2, FAILED)


@pytest.mark.parametrize("line", KINDS)
def test_a_kind_says_who_has_to_act(explain, line):
    assert verdict(explain, line)[:2] == (1, KINDS[line])


@pytest.mark.parametrize("line", NO_CAUSE)
def test_options_and_checks_are_no_failures(explain, line):
    assert explain(log(line, "ready"))["verdicts"] == []


def test_what_was_tried_again_and_succeeded_is_no_cause(explain):
    tried = "##[error]fatal: unable to access 'https://git.example.org/o/r/': The requested URL returned error: 500"
    assert verdict(explain, tried, "make: nothing")[2] == "Git host unreachable"
    assert (
        verdict(explain, tried, "HEAD is now at 1a2b3c4 Some change", "make: nothing")[2]
        != "Git host unreachable"
    )


def test_a_group_that_a_tool_opens_is_read(explain):
    assert verdict(explain, "##[group]Running the tests", FAILED, "##[endgroup]")[:2] == (2, "test")
    echo = ["##[group]Run echo 'FAILED a.py::b'", f"\x1b[36;1m{FAILED}\x1b[0m", "shell: /usr/bin/bash -e {0}"]
    assert verdict(explain, *echo, "##[endgroup]", "E   assert 2 == 3")[:2] == (5, "test")
    after = ["##[group]Running the tests", FAILED, *echo, "##[endgroup]"]
    assert verdict(explain, *after)[:2] == (2, "test")


@pytest.mark.parametrize(("code", "kind"), [(137, "oom"), (139, "test"), (134, "test"), (143, "cancel")])
def test_the_exit_code_of_a_signal_says_how_a_process_ended(explain, code, kind):
    text = log("linking", f"##[error]Process completed with exit code {code}.")
    found = explain(text)["verdicts"][0]
    assert (found["line_num"], found["kind"]) == (2, kind)
    assert explain(text, "[[rule]]\nname = 'any'\npattern = '##.error.(.*)'\n")["verdicts"] == []


def test_the_last_line_before_the_error_is_the_last_resort(explain):
    found = explain(log("checking", "the table has 3 rows too many", "", EXIT, "Post job cleanup."))[
        "verdicts"
    ]
    assert [(one["rule"], one["kind"], one["line_num"]) for one in found] == [
        ("Last line before the error", "generic", 2)
    ]
    rules = "[[rule]]\nname = 'any'\npattern = 'nowhere'\n"
    assert explain(log("the table has 3 rows too many", EXIT), rules)["verdicts"] == []
    rules = f"last_resort = true\n{rules}"
    assert len(explain(log("the table has 3 rows too many", EXIT), rules)["verdicts"]) == 1
