import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.allowlist.allowlist import parse_allowlist, render_errors
from bot.oot.allowlist.yaml_document import AllowlistError, Problem


def only(text):
    """The one entry of a file."""
    (entry,) = parse_allowlist(text).entries
    return entry


def complaints(text):
    """What a person reads when the file is refused."""
    with pytest.raises(AllowlistError) as caught:
        parse_allowlist(text)
    return render_errors(caught.value).splitlines()


def full(level, keys):
    return f"{level}:\n- {{repo: org/a, {keys}}}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        # the file
        ("", r"line 1: the file is empty: write `L1: \[\]` if nobody is to take part"),
        ("# nothing\n", "line 1: the file is empty"),
        ("{}", "line 1: the file is empty"),
        ("null", "line 1: the file is empty"),
        ("- org/a", "line 1: the file has to be a mapping"),
        ("L1: []\nl2: []", "line 2: `l2` is no level: did you mean `L2`?"),
        ("L5: []", "line 1: `L5` is no level: the levels are L1, L2, L3 and L4"),
        ("L1: []\nL1: []", "line 2: `L1` is already on line 1"),
        ("L1: {org/a: alice}", "line 1: L1 has to be a list: write `- owner/repo`"),
        ("L4: org/a", "line 1: L4 has to be a list or a mapping by device"),
        ("? [a]\n: b", "line 1: a key must be a word"),
        # YAML
        ("L1: [", "line 1: not valid YAML at column 6"),
        ("L1:\n- org/a: [@alice]", "line 2: not valid YAML at column 11: .*leave the @ out"),
        ("L1:\n\t- org/a", "line 2: not valid YAML at column 1: .*indent with spaces"),
        ("L1: []\n---\nL2: []", "line 2: not valid YAML"),
        ('L1: ["\\UFFFFFFFF"]', "line 1: not valid YAML: a number here is out of range"),
        ("L1: [!!str org/a]", "line 1: the tag `tag:yaml.org,2002:str` is not accepted"),
        ("L1: [&x org/a]", "line 1: `&x` is not accepted"),
        ("L1: []\r\n# \x00", r"line 2: the invisible character U\+0000"),
        ("L1: []\n# \u2028", r"line 2: the invisible character U\+2028"),
        ("L1: []\n# \ud800", "line 2: a byte here is not UTF-8"),
        (b"L1: []\n# \xff", "line 2: a byte here is not UTF-8"),
        ("L1: []".encode("utf-16"), "line 1: a byte here is not UTF-8"),
        ("L1: " + "[" * 50, "line 1: more than 12 levels deep"),
        ("- " * 5_000, "line 1: more than 12 levels deep"),
        ("L1: [" + "a," * 20_000 + "]", "line 1: more than 20000 words and lists"),
        ("#" * (1024 * 1024 + 1), "line 1: 1048577 bytes, more than 1048576"),
        # forms
        ("L1:\n-", "line 2: nothing stands where an entry is expected"),
        ("L1: [[org/a]]", "line 1: a list stands where an entry is expected"),
        ("L1: [{}]", "line 1: an empty mapping cannot be one entry"),
        ("L1: [{org/a: x, org/b: y}]", "line 1: `org/a` and `org/b` cannot be one entry"),
        ("L2:\n- org/a:\n  policy: all", "line 2: `org/a` stands beside keys of an entry: indent"),
        ("L2: [{npu: org/a}]", "line 1: `npu` is not a repository"),
        ("L2: [{org/a: {repo: org/a}}]", "line 1: `org/a` is named already"),
        ("L2: [{policy: all}]", "line 1: the entry names no repository"),
        ("L4:\n  org/a: alice", "line 2: `org/a` stands where a device is expected"),
        ("L4: {repo: org/a}", "line 1: `repo` stands where a device is expected: begin"),
        ("L3: [org/a]", "line 1: an L3 entry needs a device.*`npu: org/a`"),
        ("L3: {npu: }", "line 1: `npu` has to name one repository"),
        ("L3: {npu: [org/a]}", "line 1: `npu` has to name one repository"),
        ("L4: {npu: {org/a: , org/b: }}", "line 1: `org/a` and `org/b` cannot be one entry"),
        ("L3: {npu: {tpu: org/a}}", "line 1: `tpu` is not a repository"),
        ("L3: {npu: {repo: org/a, device: tpu}}", "line 1: the device is `tpu` here and `npu` ab"),
        # twice
        ("L1: [org/a]\nL2:\n- Org/A", r"line 3: the repository `Org/A` is already on line 1 \(L1\)"),
        ("L3: {npu: org/a}\nL4: {NPU: org/b}", "line 2: the device `NPU` is already on line 1"),
        ("L4: [{npu: org/a}, {npu: org/b}]", "line 1: the device `npu` is already on line 1"),
        ("L3:\n  npu: org/a\n  npu: org/b", "line 3: `npu` is already on line 2"),
        (
            "L1:\n- {repo: org/a, repository_id: 1}\n- {repo: org/b, repository_id: 1}",
            "line 3: the repository_id `1` is already on line 2",
        ),
        (full("L2", "policy: all, policy: all"), "line 2: `policy` is already on line 2"),
        # keys
        (full("L4", "answers: some"), "line 2: a gate cannot wait for a backend that need not answer at L4"),
        (full("L4", "actions: [opened, closed]"), "line 2: a gate would wait.*`reopened`, `synchronize`"),
        (full("L2", "events: push, actions: opened"), "line 2: `actions` filters pull requests"),
        (full("L2", "actions: [labeled]"), "line 2: `labeled` is not allowed here: write opened or"),
        (full("L2", "deletions: true"), "line 2: `deletions` is about pushes, and none are asked for"),
        (full("L2", "events: nightly, nightly: refused"), "line 2: `nightly` is refused here and among"),
        (full("L1", "nightly: accepted"), "line 2: `nightly` means nothing at L1"),
        (full("L2", "oncall: alice"), "line 2: `oncall` is no key.*did you mean `oncalls`"),
        (full("L1", "Repo: org/b"), "line 2: `Repo` is no key.*did you mean `repo`"),
        (full("L1", "xyz: 1"), "line 2: `xyz` is no key of an entry: L1 knows repo, repository_id"),
        # keys in the wrong place: what a key is most like is named wherever it stands
        (
            "L4:\n- org/a: [x]\n  chekcs: jobs",
            "line 3: `chekcs` is no key of an entry: did you mean `checks`",
        ),
        ("L4:\n  a:\n    org/a: [x]\n    chekcs: jobs", "line 4: `chekcs` is no key.*did you mean `checks`"),
        ("L4:\n  a: org/a\n  chekcs: jobs", "line 3: `chekcs` stands where a device.*did you mean `checks`"),
        ("chekcs: jobs\nL1: []", "line 1: `chekcs` is no level: did you mean `checks`, .*of an entry"),
        ("checks: jobs\nL1: []", "line 1: `checks` is no level: .*of an entry"),
        (full("L2", "policy: "), "line 2: `policy` has no value"),
        (full("L2", "device: npu"), "line 2: `device` means nothing at L2"),
        (full("L1", "checks: jobs"), "line 2: `checks` means nothing at L1"),
        (full("L4", "conclusion: failure"), "line 2: `conclusion` means nothing at L4"),
        (full("L2", "confirm: true"), "line 2: `confirm` means nothing at L2"),
        (full("L2", "static_key: allowed"), "line 2: `static_key` means nothing at L2"),
        (full("L1", "callback_token: required"), "line 2: `callback_token` means nothing at L1"),
        (full("L1", "job_timeout: 1h"), "line 2: `job_timeout` means nothing at L1"),
        (full("L1", "rate_limit: 1"), "line 2: `rate_limit` means nothing at L1"),
        (full("L1", "events: nightly"), "line 2: `nightly` means nothing at L1"),
        (full("L4", "events: [push]"), "line 2: L4 is about pull requests"),
        (full("L2", "refs: [main]"), "line 2: `refs` is about pushes, and none are asked for"),
        (full("L2", "dispatch: workflow"), "line 2: `dispatch: workflow` starts one workflow"),
        (full("L2", "workflow_file: ci.yml"), "line 2: `workflow_file` is not used"),
        # values
        (full("L2", "policy: some"), "line 2: `some` is not allowed here: write all or trusted"),
        (full("L2", "policy: [all]"), "line 2: a list is not allowed here"),
        (full("L2", "events: [pr]"), "line 2: `pr` is not allowed here: write pull_request or"),
        (full("L2", "events: []"), "line 2: the list is empty"),
        (full("L2", "events: {push: }"), "line 2: a mapping is not a list of words"),
        (full("L2", "events: push, refs: []"), "line 2: the list is empty"),
        (full("L2", "aka: [a b]"), "line 2: `a b` is no word in the name of a test"),
        (full("L1", "aka: npu"), "line 2: `aka` means nothing at L1"),
        (full("L2", 'events: push, refs: ["a b"]'), "line 2: `a b` is no pattern of refs"),
        (full("L2", 'events: push, refs: ["\\0"]'), r"line 2: `\\x00` is no pattern of refs"),
        (full("L2", "oncalls: [[alice]]"), "line 2: a list stands where a word is expected"),
        (full("L4", "confirm: yes"), "line 2: `yes` is not true or false"),
        (full("L4", 'confirm: "true"'), "line 2: `true` is not true or false: .*unquoted"),
        (full("L2", "job_timeout: 90"), "line 2: `90` is not a duration"),
        (full("L2", "job_timeout: 1:30"), "line 2: `1:30` is not a duration"),
        (full("L2", "job_timeout: [6h]"), "line 2: a list is not a duration"),
        (full("L2", "start_timeout: 36d"), "line 2: `36d` is too long: write at most `35d`"),
        (full("L2", "workflow_file: .github/ci.yml, dispatch: workflow"), "line 2: .* without folder"),
        ("L3: {gate: org/a}", "line 1: `gate` is reserved"),
        ("L4: [{repo: org/a, device: Policy}]", "line 1: `Policy` is reserved"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_remedy(text, complaint):
    (message,) = complaints(text)
    assert re.match(complaint, message), message


@pytest.mark.parametrize(
    "repo",
    [
        "org",
        "/a",
        "org/",
        "org/a/b",
        "-org/a",
        "org-/a",
        "o--g/a",
        "o.g/a",
        "o" * 40 + "/a",
        "org/" + "a" * 101,
        "org/.",
        "org/..",
        "org/a.git",
        "org/ü",
        "'org/a '",
        '"org/a\\n"',
        "https://github.com/org/a",
    ],
)
def test_what_cannot_be_a_repository_is_refused(repo):
    (message,) = complaints(f"L1:\n- {repo}")
    assert re.match("line 2: `.*` is not a repository: write `owner/repo`", message)


@pytest.mark.parametrize("repo", ["a/b", "o-r-g/.github", "o" * 39 + "/" + "a" * 100, "1/2", "o/-_-"])
def test_every_name_github_allows_is_a_repository(repo):
    assert only(f"L1: [{repo}]").repo == repo


@pytest.mark.parametrize(
    "login", ["-a", "a-", "a--b", "a b", "@@a", "'@'", "''", "a.b", "a" * 40, "org/team", "ü", "a[bot]"]
)
def test_what_cannot_be_a_login_is_refused(login):
    quoted = "'" + login.strip("'") + "'"
    (message,) = complaints(f"L1:\n- org/a:\n  - alice\n  - {quoted}")
    assert re.match("line 4: `.*` is not a login", message)


@pytest.mark.parametrize("login", ["a", "a-b-c", "a" * 39, "alice_corp", "0"])
def test_every_login_github_allows_may_be_on_call(login):
    assert only(f"L1: [{{org/a: ['@{login}']}}]").oncalls == (login,)


@pytest.mark.parametrize("device", ["-npu", ".npu", "n pu", "a" * 51, "ü", "''", "n,pu", "n:pu"])
def test_what_fits_in_no_label_cannot_be_a_device(device):
    quoted = "'" + device.strip("'") + "'"
    (message,) = complaints(f"L4: [{{{quoted}: org/a}}]")
    assert re.match("line 1: `.*` is not a device", message)


@pytest.mark.parametrize(
    "number",
    ["0", "-1", "+1", "1.0", "1e3", "1_000", "010", "0x10", "true", "'5'", "[5]", "9" * 19, "9" * 5_000],
)
@pytest.mark.parametrize("key", ["repository_id", "rate_limit"])
def test_a_number_is_plain_digits_within_bounds(key, number):
    (message,) = complaints(full("L2", f"{key}: {number}"))
    assert re.match("line 2: .* is not a whole number from 1 to ", message)


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file():
    text = """L4:
- {repo: org/a, confirm: 1, rate_limit: x}
l1: []
L2:
- org/A
- org//b
- org/c: [al ice, bob-]
"""
    assert complaints(text) == [
        "line 2: `1` is not true or false: write one of them, unquoted",
        "line 2: `x` is not a whole number from 1 to 100000: write plain digits without quotes",
        "line 3: `l1` is no level: did you mean `L1`?",
        "line 5: the repository `org/A` is already on line 2 (L4): keep one of the two",
        "line 6: `org//b` is not a repository: write `owner/repo`, without URL",
        "line 7: `al ice` is not a login: name people (not teams) as in `alice`",
        "line 7: `bob-` is not a login: name people (not teams) as in `alice`",
    ]


def test_anchors_and_aliases_are_all_named():
    assert complaints("L1: &x [org/a]\nL2: *x") == [
        "line 1: `&x` is not accepted: write the value itself",
        "line 2: `*x` is not accepted: write the value itself",
    ]


def test_the_error_holds_the_problems_and_its_own_text_is_short():
    with pytest.raises(AllowlistError) as caught:
        parse_allowlist("L1: [a]\nL2: [b]")
    first, second = caught.value.problems
    assert first == Problem(1, "`a` is not a repository: write `owner/repo`, without URL")
    assert (second.line, str(caught.value)) == (2, f"{first} (and 1 more)")


# --- anything at all


def survives(text):
    """Parse; a refusal must hold lines of the file and messages of one printable line."""
    try:
        return parse_allowlist(text)
    except AllowlistError as error:
        for problem in error.problems:
            assert problem.line >= 1
            assert problem.message.isprintable()
            problem.message.encode()
        return None


@given(st.text() | st.binary())
def test_no_text_raises_anything_but_allowlist_error(text):
    survives(text)


TOKENS = st.sampled_from(
    [
        *("L1", "L3", "L4", "org/a", "org/b:", "npu", "npu:", "alice", "true", "1", "push"),
        *("repo:", "device:", "events:", "refs:", "confirm:", "oncalls:"),
        *(":", "-", ",", "[", "]", "{", "}", "?", "!", "!!x", "!<x>", "!%ff", "&", "*", "&a", "*a"),
        *("|", ">", "'", '"', "#", "%", "@", "`", "~", "<<", "---", "...", "\\x", "\\U", "\\uD800"),
        *("%YAML", "%TAG", "%YAML 1.1\n", "\n---\n", "\n", "\n  ", "\n- ", "\t", " ", "\r", "\0"),
        *("\u2028", "\ufeff", "ü", chr(0xD800)),
    ]
)


@settings(max_examples=300)
@given(st.lists(TOKENS, max_size=40))
def test_no_mixture_of_yaml_signs_raises_anything_but_allowlist_error(tokens):
    survives(" ".join(tokens))
    survives("".join(tokens))
