"""Secrets in logs are masked whatever stands in or around them: colours, prefixes, numbers of lines, quotes."""

from __future__ import annotations

import io

import pytest

from bot.core.masking import mask
from bot.evidence.logs.parse.lines import Masking
from bot.evidence.logs.parse.stored_log import PlainLog

AT = "2026-11-22T10:00:00.1234567Z "
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


def stored(log):
    masking = Masking()
    return b"".join(
        masking.block(block) for block in PlainLog(io.BytesIO(log.encode()))
    ).decode(), masking.masked


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_tokens_are_masked(token, around):
    text, masked = stored(f"{AT}before\n{AT}{around.format(token)}\n{AT}after\n")
    assert ("TOPSECRET" in text, masked) == (False, 1)
    assert text.startswith(f"{AT}before\n{AT}")
    assert text.endswith(f"\n{AT}after\n")
    assert "TOPSECRET" not in mask(around.format(token))


def test_a_colour_inside_a_token_keeps_nothing_of_it():
    split = "ghp_" + "TOPSECRET" * 2 + "\x1b[1m" + "TOPSECRET" * 2
    assert stored(f"{AT}with \x1b[31m{split}\x1b[0m now\n") == (f"{AT}with \x1b[31m***\x1b[0m now\n", 1)
    assert mask(f"with {split} now") == "with *** now"


@pytest.mark.parametrize("decorated", DECORATED.values(), ids=DECORATED)
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_keys_are_masked(kind, decorated):
    key = [f"-----BEGIN {kind}-----", "Version: 2", "", *BODY, f"-----END {kind}-----"]
    lines = [decorated.format(line) for line in key]
    text, masked = stored("".join(f"{AT}{line}\n" for line in [*lines, "all is well, really"]))
    assert ("SECRET" in text, "Version" in text, masked) == (False, False, 1)
    assert text.endswith(f"{AT}all is well, really\n")
    assert text.count("\n") == len(lines) + 1
    assert "SECRET" not in mask("\n".join(lines))


def test_a_text_without_secrets_is_the_same():
    for text in ("", "a_b-c", "-----BEGIN CERTIFICATE-----\nMII\n", "\x1b[31mred_\x1b[0m", "ghp_short"):
        assert mask(text) == text
