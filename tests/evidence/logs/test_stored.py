"""The stored log: what is masked, measured and compressed, and what a page of it costs."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bot.core.masking import mask
from bot.evidence.collect.parse.contract import ParserInput
from bot.evidence.logs.parse import rulesets
from bot.evidence.logs.parse.contract import JobStep, ParserOptions, step_at
from bot.evidence.logs.parse.lines import Masking
from bot.evidence.logs.parse.parse_log import parse_log
from bot.evidence.logs.parse.stored_log import BLOCK, LINE_MOST, DamagedLog, PlainLog, StoredLog

AT = "2026-11-22T10:00:0{}.1234567Z "
TOKEN = "ghp_" + "a1" * 18
SECRETS = {
    "token": f"push with {TOKEN} now",
    "installation token": "ghs_123456_eyJhbGciOiJSUzI1NiJ9." + "aB-_." * 60,
    "fine-grained token": "github_pat_" + "A1_" * 20,
    "AWS key": "AKIA" + "ABCDEFGH" * 2,
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "escaped key": 'k="-----BEGIN PRIVATE KEY-----\\nMIIabc\\n-----END PRIVATE KEY-----\\n" after',
}
STEPS = [
    JobStep(name="Set up job", number=1, started_at="2026-11-22T10:00:00Z"),
    JobStep(name="Build", number=2, started_at="2026-11-22T10:00:02Z"),
    JobStep(name="Test", number=3, started_at="2026-11-22T10:00:02Z"),
    JobStep(name="Skipped", number=4, started_at=None),
    JobStep(name="Post", number=5, started_at="2026-11-22T10:00:05Z"),
]
SAME = [
    ("/home/runner/work/npu/npu/src/a.cpp: bad", "/home/ci/actions/_work/project/project/src/a.cpp: bad"),
    ("no file /tmp/pytest-of-me/x1", "no file /tmp/tmpq8xw_/y"),
    ("pid 12345 gone", "pid 999999 gone"),
    ("address 0x7ffe12345678", "address 0xdeadbeefdeadbeef"),
    ("commit 0123abcd4567", "commit ffeeddccbbaa"),
    ("two   words", "two words"),
    ("at 12345678 ns", "at 1234567 ns"),
]
STAMP = "2026-11-22T10:00:00.1234567Z "
BODY = ("MIIEowIBAAKCAQEAxyzTOPSECRET", "abcdefghTOPSECRET0123+/==")
TOKENS = {
    "GitHub": "ghp_" + "TOPSECRET" * 4,
    "Hugging Face": "hf_" + "TOPSECRET" * 4,
    "npm": "npm_" + "TOPSECRET" * 4,
    "GitLab": "glpat-" + "TOPSECRET" * 3,
    "Slack": "xoxb-1234567890-TOPSECRET",
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + "TOPSECRET" * 5,
    "temporary AWS key": "ASIA" + "TOPSECRETTOPSECR",
    "AWS secret key": "AWS_SECRET_ACCESS_KEY=" + "TOPSECRETx" * 4,
    "AWS secret key in JSON": '"SecretAccessKey": "' + "TOPSECRETx" * 4 + '"',
}
AROUND = {
    "plain": "{}",
    "coloured": "\x1b[31m{}\x1b[0m",
    "quoted": "token='{}'",
    "docker compose": "web_1  | {}",
    "numbered": "  12\t{}",
}
DECORATED = {
    "plain": "{}",
    "docker compose": "web_1  | {}",
    "BuildKit": "#12 0.311 {}",
    "numbered by cat": "    12\t{}",
    "numbered by grep": "12:{}",
    "quoted mail": "> {}",
    "quoted text": '  "{}",',
    "diff": "+{}",
    "coloured": "\x1b[32m{}\x1b[0m",
    "Windows": "{}\r",
}


class Blob:
    """A blob that counts what is read of it."""

    def __init__(self, content):
        self.content, self.read_bytes = content, 0

    def read(self, start, length):
        self.read_bytes += length
        return self.content[start : start + length]

    def open(self):
        return StoredLog(self.read, len(self.content))


@pytest.fixture
def parsed(tmp_path):
    """Parse a log as the parser child does; returns the findings and the blob."""

    def run(log, *, ruleset=None, steps=()):
        given = ParserInput(
            path=tmp_path / "log",
            blob=tmp_path / "blob",
            members=(),
            options=msgspec.to_builtins(
                ParserOptions(ruleset=ruleset or rulesets.shipped_rules(), steps=tuple(steps))
            ),
        )
        given.path.write_bytes(log if isinstance(log, bytes) else log.encode())
        found = msgspec.msgpack.decode(msgspec.msgpack.encode(parse_log(given)))
        return found, Blob(given.blob.read_bytes())

    return run


def big(lines):
    chance = random.Random(1)
    return "".join(f"{AT.format(n % 10)}line {n} {chance.random()}\n" for n in range(lines))


def test_the_stored_log_is_the_log(parsed):
    log = big(30_000)
    found, blob = parsed(log)
    assert b"".join(blob.open()).decode() == log
    assert (found["bytes"], found["lines"]) == (len(log), 30_000)
    assert found["longest_line"] == max(map(len, log.splitlines()))
    assert (found["first_at"], found["last_at"]) == (1795341600123, 1795341609123)
    assert not found["truncated"]
    assert len(blob.content) < len(log) / 2


@pytest.mark.parametrize("log", ["", "\n", "x", "x\r\n\r\n", "\0\n\xff\xfe"])
def test_every_log_is_kept_as_it_is(parsed, log):
    raw = log.encode("latin-1")
    found, blob = parsed(raw)
    assert b"".join(blob.open()) == raw
    assert found["verdicts"][0]["rule"] is None
    assert found["verdicts"][0]["kind"] == "none"


def test_some_lines_cost_the_same_whatever_the_size_of_the_log(parsed):
    costs = []
    for lines in (10_000, 100_000):
        _, blob = parsed(big(lines))
        log = blob.open()
        blob.read_bytes = 0
        blocks = log.index.around(lines // 2 - 10, lines // 2 + 10)
        start, length = log.index.part(blocks)
        text = b"".join(log.index.inflate(blocks, blob.read(start, length)))
        assert f"line {lines // 2} ".encode() in text
        assert len(blocks) <= 2
        costs.append(blob.read_bytes)
    assert costs[1] < 2.5 * costs[0]
    assert costs[1] < 2 * BLOCK


def test_bytes_of_the_plain_log_are_found(parsed):
    log = big(20_000).encode()
    _, blob = parsed(log)
    index = blob.open().index
    blocks = index.within(700_000, 700_100)
    start, length = index.part(blocks)
    text = b"".join(index.inflate(blocks, blob.read(start, length)))
    begin = 700_000 - index.entries[blocks[0]].plain_start
    assert text[begin : begin + 100] == log[700_000:700_100]
    assert len(index.within(0, 0)) == 0


def test_a_line_over_the_limit_is_cut_and_counted(parsed):
    found, blob = parsed(b"x" * (LINE_MOST + 1) + b"\nlast\n")
    assert (found["truncated"], found["longest_line"], found["lines"]) == (True, LINE_MOST + 1, 2)
    assert b"".join(blob.open()) == b"x" * LINE_MOST + b"\nlast\n"
    found, _ = parsed(b"x" * LINE_MOST + b"\nlast\n")
    assert (found["truncated"], found["longest_line"]) == (False, LINE_MOST)


@pytest.mark.parametrize("damage", ["short", "magic", "index", "frame"])
def test_a_damaged_blob_is_said_to_be_damaged(parsed, damage):
    _, blob = parsed(big(100))
    content = bytearray(blob.content)
    if damage == "short":
        content = content[:10]
    elif damage == "magic":
        content[-16] ^= 1
    elif damage == "index":
        content[-20] ^= 0xFF
    else:
        content[8] ^= 0xFF
        content[0] ^= 0xFF
    with pytest.raises(DamagedLog):
        list(Blob(bytes(content)).open())


@pytest.mark.parametrize("line", SECRETS.values(), ids=SECRETS)
def test_secrets_are_masked_before_anything_is_stored(parsed, line):
    found, blob = parsed(f"{AT.format(1)}{line}\n##[error]failed with {line}\n")
    text = b"".join(blob.open()).decode()
    assert found["secrets_masked"] == 2
    for part in ("a1a1", "aB-_", "A1_A1", "ABCDEFGH", "dozjgNryP4J3", "MIIabc"):
        assert part not in text
        assert part not in str(found)
    assert text.startswith(AT.format(1))
    assert ("now" in line) == ("now" in text)
    assert ("after" in line) == ("after" in text)


@pytest.mark.parametrize("filler", [0, BLOCK])
def test_a_private_key_is_masked_line_by_line(parsed, filler):
    key = [
        "-----BEGIN RSA PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
        "",
        "MIIEow+/==",
        "-----END RSA PRIVATE KEY-----",
    ]
    log = "x" * filler + "\n" + "".join(f"{AT.format(1)}{line}\n" for line in [*key, "all is well, really"])
    found, blob = parsed(log)
    text = b"".join(blob.open()).decode()
    assert found["secrets_masked"] == 1
    assert "MII" not in text
    assert "Proc-Type" not in text
    assert text.endswith("all is well, really\n")
    assert text.count("\n") == log.count("\n")


def test_a_key_without_end_masks_no_ordinary_line(parsed):
    found, blob = parsed("-----BEGIN PRIVATE KEY-----\nMIIabc\nFAILED tests/a.py::test_b - boom\n")
    assert b"FAILED tests/a.py" in b"".join(blob.open())
    assert found["verdicts"][0]["rule"] == "pytest failure"


def test_almost_secrets_stay(parsed):
    log = "ghp_short AKIAshort eyJhbGciOiJIUzI1NiJ9 -----BEGIN CERTIFICATE-----\n"
    found, blob = parsed(log)
    assert b"".join(blob.open()).decode() == log
    assert found["secrets_masked"] == 0


@pytest.mark.parametrize(
    ("second", "step"),
    [("0", "Set up job"), ("1", "Set up job"), ("2", "Test"), ("4", "Test"), ("5", "Post")],
)
def test_a_line_belongs_to_the_last_step_that_had_begun(parsed, second, step):
    found, _ = parsed(f"{AT.format(second)}##[error]boom\n", steps=STEPS)
    assert found["verdicts"][0]["step"] == step


def test_without_a_time_the_step_is_unknown(parsed):
    assert parsed("##[error]boom\n", steps=STEPS)[0]["verdicts"][0]["step"] is None
    assert step_at([JobStep(name="x", started_at="soon")], 0) is None
    assert step_at(STEPS, 0) is None


def rule(name, pattern):
    return f"[[rule]]\nname = '{name}'\npattern = '''{pattern}'''\n"


@pytest.mark.parametrize("texts", SAME)
def test_what_differs_between_runs_does_not_change_the_signature(parsed, texts):
    ruleset = rulesets.parse_rules(rule("r", "^ERR (.*)$").encode(), "rules.toml")
    found = [parsed(f"ERR {text}\n", ruleset=ruleset)[0]["verdicts"][0] for text in texts]
    assert found[0]["signature"] == found[1]["signature"]
    assert found[0]["captures"] != found[1]["captures"]


def test_what_was_captured_and_the_rule_make_the_signature(parsed):
    one, other = (rulesets.parse_rules(rule(name, "^ERR (.*)$").encode(), "x") for name in ("one", "other"))
    signatures = {
        parsed(f"ERR {text}\n", ruleset=ruleset)[0]["verdicts"][0]["signature"]
        for text, ruleset in [
            ("a.py:1", one),
            ("b.py:1", one),
            ("a.py:1", other),
            ("rank 12", one),
            ("rank 13", one),
        ]
    }
    assert len(signatures) == 5


def test_a_log_that_is_not_classified_is_only_kept(tmp_path):
    (tmp_path / "log").write_text("##[error]x\n")
    found = parse_log(ParserInput(path=tmp_path / "log", blob=tmp_path / "blob", members=(), options={}))
    assert found["verdicts"] == []
    assert Path(tmp_path / "blob").stat().st_size > 0


def test_the_parser_imports_the_core_and_itself_only():
    code = "import sys, bot.evidence.logs.parse.parse_log; print(*sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    packages = {"bot.evidence", "bot.evidence.collect", "bot.evidence.collect.parse"}
    allowed = ("bot.core", "bot.evidence.logs", "bot.evidence.collect.parse.contract")
    ours = {name for name in loaded - packages if name.startswith("bot.")}
    assert {name for name in ours if not name.startswith(allowed)} == set()
    assert not {"sqlalchemy", "aiohttp", "jinja2"} & loaded


def stored(log):
    masking = Masking()
    return b"".join(
        masking.block(block) for block in PlainLog(io.BytesIO(log.encode()))
    ).decode(), masking.masked


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_tokens_are_masked(token, around):
    text, masked = stored(f"{STAMP}before\n{STAMP}{around.format(token)}\n{STAMP}after\n")
    assert ("TOPSECRET" in text, masked) == (False, 1)
    assert text.startswith(f"{STAMP}before\n{STAMP}")
    assert text.endswith(f"\n{STAMP}after\n")
    assert "TOPSECRET" not in mask(around.format(token))


def test_a_colour_inside_a_token_keeps_nothing_of_it():
    split = "ghp_" + "TOPSECRET" * 2 + "\x1b[1m" + "TOPSECRET" * 2
    assert stored(f"{STAMP}with \x1b[31m{split}\x1b[0m now\n") == (f"{STAMP}with \x1b[31m***\x1b[0m now\n", 1)
    assert mask(f"with {split} now") == "with *** now"


@pytest.mark.parametrize("decorated", DECORATED.values(), ids=DECORATED)
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_keys_are_masked(kind, decorated):
    key = [f"-----BEGIN {kind}-----", "Version: 2", "", *BODY, f"-----END {kind}-----"]
    lines = [decorated.format(line) for line in key]
    text, masked = stored("".join(f"{STAMP}{line}\n" for line in [*lines, "all is well, really"]))
    assert ("SECRET" in text, "Version" in text, masked) == (False, False, 1)
    assert text.endswith(f"{STAMP}all is well, really\n")
    assert text.count("\n") == len(lines) + 1
    assert "SECRET" not in mask("\n".join(lines))


def test_a_text_without_secrets_is_the_same():
    for text in ("", "a_b-c", "-----BEGIN CERTIFICATE-----\nMII\n", "\x1b[31mred_\x1b[0m", "ghp_short"):
        assert mask(text) == text
