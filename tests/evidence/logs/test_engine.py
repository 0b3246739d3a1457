"""Which line of a log wins, and what is said of it? Asked of the command line."""

from __future__ import annotations

import io
import random
import time
from types import SimpleNamespace

import pytest

from bot.evidence.logs.parse import rulesets as ruleset_files
from bot.evidence.logs.parse.classify import classify
from bot.evidence.logs.parse.classify import explain as explain_log
from bot.evidence.logs.parse.lines import kept_spans, prefix_length, without_escapes
from bot.evidence.logs.parse.rulesets import Matcher
from bot.evidence.logs.parse.stored_log import BLOCK, LINE_MOST, PlainLog

AT = "2026-11-22T10:00:00.1234567Z "
RULES = r"""
[[rule]]
name = 'first'
pattern = '^alpha (\w+)(?: of (\d+))?'
[[rule]]
name = 'second'
pattern = 'beta.*$'
kind = 'build'
[[rule]]
name = 'any error'
pattern = '^##\[error\](.*)'
"""


def rule(pattern, **more):
    return f"[[rule]]\nname = 'r'\npattern = '''{pattern}'''\n" + "".join(
        f"{key} = {value!r}\n" for key, value in more.items()
    )


def test_the_first_rule_that_matches_anywhere_wins_at_its_last_line(explain):
    found = explain("alpha one\nbeta x\nalpha two\n##[error]late\nbeta y\n", RULES)
    assert [(v["rank"], v["rule"], v["line_num"]) for v in found["verdicts"]] == [
        (0, "first", 3),
        (1, "first", 1),
        (2, "second", 5),
        (3, "any error", 4),
    ]
    assert found["lines"] == 5
    assert found["first_error"] == {"rule": "second", "kind": "build", "line": "beta x", "line_num": 2}


def test_nothing_found_is_an_empty_list(explain):
    assert explain("all is well\n", RULES) == {"lines": 1, "verdicts": [], "first_error": None, "rules": []}
    assert explain("", RULES)["lines"] == 0


def test_captures_are_the_groups_that_took_part_else_the_whole_match(explain):
    assert explain("alpha one", RULES)["verdicts"][0]["captures"] == ["one"]
    assert explain("alpha one of 3", RULES)["verdicts"][0]["captures"] == ["one", "3"]
    assert explain("xx beta y", RULES)["verdicts"][0]["captures"] == ["beta y"]


def test_at_most_five_verdicts_and_none_twice(explain):
    log = "".join(f"alpha {name}\n" for name in "abacadefg")
    found = explain(log, RULES)["verdicts"]
    assert [v["captures"] for v in found] == [["g"], ["f"], ["e"], ["d"], ["a"]]
    assert [v["line_num"] for v in found] == [9, 8, 7, 6, 5]


def test_a_rule_without_groups_and_a_generic_one_on_the_same_line_add_nothing(explain):
    rules = rule(r"^##\[error\]no space left", kind="infra") + rule(r"^##\[error\](.*)", kind="generic")
    assert len(explain("##[error]no space left\n##[error]no space left\n", rules)["verdicts"]) == 1


CLEANED = {
    "timestamp": (f"{AT}alpha x", "alpha x"),
    "no fraction": ("2026-11-22T10:00:00Z alpha x", "alpha x"),
    "nine digits": ("2026-11-22T10:00:00.123456789Z alpha x", "alpha x"),
    "colours": (f"{AT}\x1b[36;1malpha\x1b[0m x", "alpha x"),
    "C1": ("alpha\x9b1m x\x85", "alpha x"),
    "hyperlink": ("alpha \x1b]8;;https://example.org\x1b\\x\x1b]8;;\x07y", "alpha xy"),
    "two characters": ("\x1bMalpha x", "alpha x"),
    "unfinished": ("alpha x\x1b[12", "alpha x\x1b[12"),
    "BOM": ("\ufeffalpha x", "alpha x"),
    "carriage return": (f"{AT}alpha x\r", "alpha x"),
    "progress bar": ("alpha x\r50%\r", "alpha x\r50%"),
    "NUL": ("alpha x\0y", "alpha x\0y"),
}


@pytest.mark.parametrize(("raw", "line"), CLEANED.values(), ids=CLEANED)
def test_rules_see_a_line_without_timestamp_and_escape_sequences(explain, raw, line):
    assert [v["line"] for v in explain(f"{raw}\n", RULES)["verdicts"]] == [line]


@pytest.mark.parametrize(
    "raw", [f"x{AT}alpha x", "2026-11-22T10:00:00.1234567890Z alpha x", "2026-1-22T1 alpha x"]
)
def test_what_only_resembles_a_timestamp_stays(explain, raw):
    assert explain(f"{raw}\n", RULES)["verdicts"] == []


def test_a_timestamp_behind_a_colour_is_that_of_a_tool(explain):
    assert explain(f"\x1b[0m{AT}alpha x\n", RULES)["verdicts"][0]["line"] == "alpha x"


def test_invalid_utf8_is_replaced_and_the_rest_still_found(explain):
    found = explain(b"\xff\xfe\nalpha b\xc3\n", r"[[rule]]" + "\nname = 'r'\npattern = '^alpha (.*)$'")
    assert found["verdicts"][0]["captures"] == ["b\ufffd"]


def test_only_a_line_feed_ends_a_line(explain):
    found = explain("a\u2028b\x0bc\x0cd\x85e\rf\nalpha x", RULES)
    assert (found["lines"], found["verdicts"][0]["line_num"]) == (2, 2)


ANCHORS = {
    "end": (r"^alpha x$", f"{AT}alpha x\r\nmore\n", True),
    "not the end": (r"^alpha$", "alpha x\n", False),
    "text begin": (r"\Aalpha x\z", f"first\n{AT}alpha x\r\nlast", True),
    "in a class": (r"a[^$^]pha", "alpha\n", True),
    "escaped": (r"\^alpha\$", "^alpha$\n", True),
    "quoted": (r"\Q^a$[\E]pha", "^a$[]pha\n", True),
    "flags": (r"(?i)(?-m:^ALPHA X$)", "y\nalpha x\nz\n", True),
    "never across lines": (r"alpha\s+x", "alpha\nx\n", False),
    "negated class": (r"alpha[^b]*x", "alpha\nx\n", False),
    "dot all": (r"(?s)alpha.x", "alpha\nx\n", False),
    "bracket in class": (r"[]^]x", "]x\n", True),
    "posix class": (r"^[[:alpha:]^]+$", "alpha\n", True),
}


@pytest.mark.parametrize(("pattern", "log", "matches"), ANCHORS.values(), ids=ANCHORS)
def test_a_pattern_speaks_of_one_line(explain, pattern, log, matches):
    assert bool(explain(log, rule(pattern))["verdicts"]) is matches


BOILERPLATE = [
    "##[error]Process completed with exit code 1.",
    "##[error]Process completed with exit code 128",
    "x [OSDC] Step script exited with code 1",
    "##[error][OSDC] Step cancelled by GitHub Actions (received SIGINT)",
    "##[error]Executing the custom container implementation failed. Please contact",
    "##[error]TypeError: Cannot read properties of null (reading 'jobPod')",
]


def test_boilerplate_is_no_verdict_and_keeps_its_line_numbers(explain):
    log = "".join(f"{AT}{line}\n" for line in ["##[error]real", *BOILERPLATE])
    assert [(v["line_num"], v["captures"]) for v in explain(log, RULES)["verdicts"]] == [(1, ["real"])]


def test_lines_to_ignore_may_be_added(explain):
    rules = RULES + "[[ignore]]\npattern = '^##\\[error\\]Cleanup'\n"
    assert explain("##[error]Cleanup failed\n", rules)["verdicts"] == []


SCCACHE = "=" * 19 + " sccache compilation log " + "=" * 19
ADVICE = (
    "=" * 11 + " If your build fails, please take a look at the log above for possible reasons " + "=" * 11
)


def test_sections_are_left_out_with_their_first_and_last_line(explain):
    assert explain(f"{SCCACHE}\nalpha x\n{ADVICE} alpha\nbeta\n", RULES)["verdicts"][0]["rule"] == "second"


def test_a_section_without_end_did_not_begin(explain):
    assert explain(f"{SCCACHE}\nalpha x\n", RULES)["verdicts"][0]["rule"] == "first"
    assert explain(f"{SCCACHE}\nalpha x\n", "compat = true\n" + RULES)["verdicts"] == []


def test_sections_may_be_added_and_may_span_blocks(explain):
    rules = RULES + "[[section]]\nstart = '^begin$'\nstop = '^end$'\n"
    log = "beta\nbegin\nalpha x\n" + "filler\n" * (BLOCK // 3) + "alpha y\nend\n"
    assert [v["rule"] for v in explain(log, rules)["verdicts"]] == ["second"]


def test_an_echoed_script_says_nothing(explain):
    log = f"{AT}##[group]Run echo alpha x\n{AT}\x1b[36;1malpha y\x1b[0m\n{AT}shell: bash\n{AT}##[endgroup]\n{AT}beta\n"
    assert [v["rule"] for v in explain(log, RULES)["verdicts"]] == ["second"]
    assert explain("##[group]Run x\nalpha x\n", RULES)["verdicts"][0]["rule"] == "first"


def test_context_is_the_commands_above_nearest_first(explain):
    log = "".join(f"+ command {n}\nout\n" for n in range(20)) + "alpha x\n+ later\n"
    assert explain(log, RULES)["verdicts"][0]["context"] == [f"+ command {n}" for n in range(19, 7, -1)]


def test_context_is_found_far_above(explain):
    log = "+ make\n" + "filler\n" * (BLOCK // 2) + "alpha x\n"
    assert explain(log, RULES)["verdicts"][0]["context"] == ["+ make"]


def test_a_file_of_rules_given_first_has_priority(explain):
    found = explain("alpha x\n", [rule(r"alph(a)"), RULES.replace("'first'", "'first'\nkind = 'test'")])
    assert [v["rule"] for v in found["verdicts"]] == ["r", "first"]


def test_every_rule_and_its_last_line(ootbot, tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "log").write_text("alpha x\nbeta\n##[error]y\n")
    code, out, _ = ootbot("logs", "explain", tmp_path / "log", "--rules", tmp_path / "rules.toml")
    assert code == 0
    assert "verdict: first (generic), line 1" in out
    assert "        3  any error" in out


@pytest.mark.parametrize("excess", [0, 1])
def test_of_a_line_one_mebibyte_is_read(explain, excess):
    line = "x" * (LINE_MOST - 6 + excess) + "alpha!"
    found = explain(f"{line}\nbeta\n", rule("alpha!") + rule("beta"))
    assert [v["line_num"] for v in found["verdicts"]] == ([1, 2] if not excess else [2])


def test_a_line_far_too_long_counts_as_one(explain):
    found = explain("alpha x" + "y" * (5 * LINE_MOST) + "\nbeta" + "z" * (2 * LINE_MOST), RULES)
    assert found["lines"] == 2
    assert [v["line_num"] for v in found["verdicts"]] == [1, 2]
    assert len(found["verdicts"][0]["line"]) == 1000


def slowly(log, ruleset):
    """The semantics in a few lines: every rule on every line; only for logs without sections."""
    lines = log.split("\n")
    lines = [line.removesuffix("\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    compiled = Matcher(ruleset)
    for index in range(len(ruleset.rules)):
        for number in range(len(lines), 0, -1):
            line = without_escapes(lines[number - 1].removeprefix(AT).encode())
            line = line[prefix_length(line) :]
            if compiled.pattern(index).search(line) and b"[OSDC] Step script exited" not in line:
                return ruleset.rules[index].name, number
    return None


@pytest.mark.parametrize("seed", range(20))
def test_blocks_find_what_every_rule_on_every_line_finds(seed):
    chance = random.Random(seed)
    patterns = [r"^ab", r"b$", r"\bc", r"^(a|b)c*$", r"a.c", r"[^a]b", r"c{3}", r"\Aa+\z", r"Z"]
    names = list(enumerate(chance.sample(patterns, 4)))
    text = "".join(f"[[rule]]\nname = 'r{n}'\npattern = '{pattern}'\n" for n, pattern in names)
    ruleset = ruleset_files.parse_rules(text.encode(), "rules.toml")
    words = ["[rank0]: ", "10:00:00 ", "2026-11-22 10:00:00 ", "#1 2.3 ", "x_1  | ", "1"] * (seed % 2)
    words += ["a", "b", "c", " ", "\r", "é", "\u00a0", "\x1b[0m", "\x9b", "[OSDC] Step script exited", "\x1b"]
    for _ in range(40):
        lines = ["".join(chance.choices(words, k=chance.randint(0, 5))) for _ in range(chance.randint(0, 6))]
        log = "\n".join(chance.choice(["", AT]) + line for line in lines)
        found = classify(PlainLog.of(log.encode()), ruleset).verdicts
        best = (found[0]["rule"], found[0]["line_num"]) if found else None
        assert best == slowly(log, ruleset), log


def test_explaining_a_log_reads_it_once():
    class Counted(PlainLog):
        read = 0

        def __iter__(self):
            self.read += 1
            return super().__iter__()

    log = Counted(io.BytesIO(b"alpha\nbeta\n" * 10))
    ruleset = ruleset_files.parse_rules((rule("alpha") + rule("beta")).encode(), "rules.toml")
    found, last = explain_log(log, ruleset)
    assert ([one["line_num"] for one in found.verdicts], [hit.number for hit in last]) == ([19, 20], [19, 20])
    assert log.read == 1


def test_escape_sequences_are_removed_in_one_pass():
    chance = random.Random(1)
    pieces = [b"\x1b", b"[", b"]", b"0", b"m", b"\\", b"\x07", b"\n", b"K", "\x9b".encode(), "é".encode()]
    for _ in range(3000):
        text = b"".join(chance.choices(pieces, k=30))
        plain = text.replace("\x9b".encode(), b"\x1b[")
        assert without_escapes(text) == b"".join(plain[start:end] for start, end in kept_spans(text))


def test_a_set_that_runs_out_of_memory_loses_no_verdict():
    ruleset = ruleset_files.parse_rules((rule(r"[ab].{60}c.{60}d") + rule(r"^alpha")).encode(), "rules.toml")
    log = ("".join(random.Random(1).choices("abcd", k=4000)) + "\nalpha\n").encode()
    compiled = Matcher(ruleset)
    compiled._set = SimpleNamespace(Match=lambda _text: None)  # as RE2 answers then
    assert compiled.may_match(log) == compiled._all


def test_rulesets_that_are_too_large_together_find_the_same():
    ruleset = ruleset_files.parse_rules((rule(r"^alph(a)") + rule(r"beta$")).encode(), "rules.toml")
    compiled = Matcher(ruleset)
    compiled._set = None
    assert compiled.may_match(b"alpha\nbeta\n") == compiled._all
    assert Matcher(ruleset, memory=4096)._set is None


HOSTILE = {
    "FAIL: test (": b"FAIL: test (" * 1700,
    "digits": b"1" * 1_000_000,
    "one line": b"x" * 10_000_000,
    "error": b"##[error]" + b"x" * 10_000_000,
    "positions": b"a:1:1: " * 150_000,
    "escapes": b"\x1b" * 1_000_000,
    "unfinished sequences": b"\x1b[1" * 200_000,
    "open commands": b"\x1b]8;" * 60_000,
    "groups": b"##[group]Run\n" * 40_000,
    "boilerplate": b"##[error]Process completed with exit code 1.\n" * 20_000,
}


@pytest.mark.parametrize("log", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_log_takes_time_in_proportion_to_its_size(log):
    """Doubled, it takes twice as long; four times leaves room for a busy machine, the square would be more."""
    ruleset = ruleset_files.shipped_rules()
    classify(PlainLog.of(log), ruleset)
    took = [min(spent(piece, ruleset) for _ in range(3)) for piece in (log[: len(log) // 4], log)]
    assert took[1] < 12 * took[0] + 0.05


def spent(log, ruleset):
    began = time.process_time()
    classify(PlainLog.of(log), ruleset)
    return time.process_time() - began
