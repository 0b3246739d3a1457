"""The allowlist as it is written: what it holds, and every way to write it wrong."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.allowlist import entry as allowlist_entry
from bot.oot.allowlist.allowlist import Allowlist, parse_allowlist, render_errors
from bot.oot.allowlist.entry import ENTRY_KEYS, Entry, Level
from bot.oot.allowlist.yaml_document import AllowlistError, Problem


def only(text):
    """The one entry of a file."""
    (entry,) = parse_allowlist(text).entries
    return entry


# --- forms


def test_a_plain_repository_gets_the_defaults():
    assert only("L2: [org/a]") == Entry(
        repo="org/a", level=Level.L2, line=1, confirm=False, callback_token="optional", static_key="allowed",
        answers="some",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "confirm", "callback_token"),
    [
        ("L1: [org/a]", False, "optional"),
        ("L2: [org/a]", False, "optional"),
        ("L3: {npu: org/a}", False, "required"),
        ("L4: [org/a]", True, "required"),
    ],
)
def test_trust_defaults_depend_on_the_level(level, confirm, callback_token):
    entry = only(level)
    assert (entry.confirm, entry.callback_token) == (confirm, callback_token)


@pytest.mark.parametrize(
    "oncalls",
    [
        "[alice, octocat]",
        '["@alice", octocat]',
        "alice, octocat",
        '"@alice, @octocat"',
        "'alice,octocat,'",
        "[alice, octocat, Alice]",
        "{oncalls: [alice, octocat]}",
        "{oncalls: 'alice, @octocat'}",
    ],
)
def test_oncalls_may_be_written_in_many_ways(oncalls):
    assert only(f"L2:\n- org/a: {oncalls}").oncalls == ("alice", "octocat")


@pytest.mark.parametrize("nothing", ["", "null", "~", "[]", '""', "{}", "{oncalls: }"])
def test_a_repository_may_have_nobody_on_call(nothing):
    assert only(f"L4: [{{org/a: {nothing}}}]").oncalls == ()


@pytest.mark.parametrize(
    "section",
    [
        "{npu: org/npu}",
        "{npu: {org/npu: }}",
        "{npu: {org/npu: {policy: all}}}",
        "{npu: {repo: org/npu}}",
        "{npu: {repo: org/npu, device: npu}}",
        "{npu: {org/npu: {device: npu}}}",
        "[npu: org/npu]",
        "[{npu: {repo: org/npu}}]",
        "[{repo: org/npu, device: npu}]",
        "[{org/npu: {device: npu}}]",
    ],
)
@pytest.mark.parametrize("level", ["L3", "L4"])
def test_a_device_may_be_written_in_many_ways(level, section):
    entry = only(f"{level}: {section}")
    assert (entry.repo, entry.device, entry.label) == ("org/npu", "npu", "npu")


def test_an_l4_backend_without_device_is_known_by_its_repository():
    assert only("L4: [{org/tpu: alice}]").label == "org/tpu"


def test_the_full_mapping_reads_every_key():
    text = """
L3:
- repo: Org/fpga.x_y
  repository_id: 42
  device: fpga
  aka: [Gate, array]
  oncalls: octocat
  events: pull_request, push
  actions: opened, synchronize
  refs: [main, refs/tags/*]
  deletions: true
  nightly: refused
  policy: trusted
  checks: jobs
  conclusion: failure
  callback_token: optional
  static_key: allowed
  answers: all
  dispatch: workflow
  workflow_file: ci.yml
  job_timeout: 90m
  start_timeout: 2d
  rate_limit: 7
L4:
- {repo: org/b, confirm: false}
"""
    fpga, other = parse_allowlist(text).entries
    assert fpga == Entry(
        repo="Org/fpga.x_y",
        level=3,
        line=3,
        repository_id=42,
        device="fpga",
        aka=("gate", "array"),
        oncalls=("octocat",),
        events=frozenset({"pull_request", "push"}),
        actions=frozenset({"opened", "synchronize"}),
        refs=("main", "refs/tags/*"),
        deletions=True,
        nightly="refused",
        policy="trusted",
        checks="jobs",
        conclusion="failure",
        confirm=False,
        callback_token="optional",
        static_key="allowed",
        answers="all",
        dispatch="workflow",
        workflow_file="ci.yml",
        job_timeout=5_400,
        start_timeout=172_800,
        rate_limit=7,
    )
    assert other.confirm is False


@pytest.mark.parametrize("word", ["on", "no", "yes", "null", "123", "010", "0x1F", "1e3"])
def test_words_that_yaml_would_convert_stay_words(word):
    entry = only(f"L3: {{{word}: {{org/{word}: [{word}]}}}}")
    assert (entry.device, entry.repo, entry.oncalls) == (word, f"org/{word}", (word,))


@pytest.mark.parametrize("text", ["L1:", "L1: []", "L1: ~\nL2:\nL3: {}\nL4: []"])
def test_empty_sections_are_an_allowlist_of_nobody(text):
    assert parse_allowlist(text) == Allowlist(entries=())


@pytest.mark.parametrize(
    "data", [b"L1: [org/a]", b"\xef\xbb\xbfL1: [org/a]", b"L1:\r\n- org/a\r\n", "\ufeffL1: [org/a]"]
)
def test_bytes_marks_and_line_ends_of_other_systems_are_read(data):
    assert only(data).repo == "org/a"


# --- questions


ALLOWLIST = """
L1: [org/watcher]
L2:
- {repo: Org/CPU, events: [push, nightly], refs: [main, release/*, "refs/tags/v?"]}
- {repo: org/all, events: [pull_request, push]}
L4: [org/gpu]
"""


def test_a_repository_is_found_whatever_its_case():
    allowlist = parse_allowlist(ALLOWLIST)
    assert allowlist.find("oRG/cpu").repo == "Org/CPU"
    assert allowlist.find("org/cpu").key == "org/cpu"
    assert allowlist.find("org/unknown") is None


def test_entries_are_listed_by_level():
    assert [entry.repo for entry in parse_allowlist(ALLOWLIST).at(2)] == ["Org/CPU", "org/all"]
    assert parse_allowlist(ALLOWLIST).at(Level.L3) == ()


def test_where_pushes_are_the_default_every_ref_and_deletion_is_one_of_them():
    text = "L2: [org/a, {repo: org/b, refs: [main]}, {repo: org/c, deletions: false}, {repo: org/d, events: [push]}]"
    found = parse_allowlist(text, frozenset({"pull_request", "push"}))
    assert [(entry.refs, entry.deletions) for entry in found.entries] == [
        (("refs/*",), True), (("main",), True), (("refs/*",), False), ((), False),
    ]  # fmt: skip
    assert [entry.repo for entry in found.for_event("push", "refs/tags/v1")] == ["org/a", "org/c"]


@pytest.mark.parametrize(
    ("event", "ref", "repos"),
    [
        ("pull_request", None, ["org/watcher", "org/all", "org/gpu"]),
        ("nightly", None, ["Org/CPU"]),
        ("push", None, ["Org/CPU", "org/all"]),
        ("push", "refs/heads/main", ["Org/CPU", "org/all"]),
        ("push", "refs/heads/release/1/x", ["Org/CPU", "org/all"]),
        ("push", "refs/tags/v1", ["Org/CPU"]),
        ("push", "refs/tags/v10", []),
        ("push", "refs/tags/main", []),
        ("push", "refs/heads/Main", ["org/all"]),
        ("push", "refs/heads/not/main", ["org/all"]),
        ("issues", None, []),
    ],
)
def test_events_and_refs_choose_the_backends(event, ref, repos):
    assert [entry.repo for entry in parse_allowlist(ALLOWLIST).for_event(event, ref)] == repos


ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config/allowlist.example.yml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/allowlist.md").read_text(encoding="utf-8")
CHOICES = (
    *allowlist_entry.EVENTS,
    *allowlist_entry.POLICIES,
    *allowlist_entry.CHECKS,
    *allowlist_entry.CONCLUSIONS,
    *allowlist_entry.CALLBACK_TOKENS,
    *allowlist_entry.ANSWERS,
    *allowlist_entry.NIGHTLY,
    *allowlist_entry.DISPATCHES,
)


def test_the_example_is_valid_and_uses_every_level_and_key():
    allowlist = parse_allowlist(EXAMPLE)
    assert {entry.level for entry in allowlist.entries} == set(Level)
    words = set(re.findall(r"\b([a-z_]+):", EXAMPLE))
    assert set(ENTRY_KEYS) <= words


def test_the_example_shows_an_effect_of_every_choice():
    entries = parse_allowlist(EXAMPLE).entries
    terms = {term for entry in entries for term in vars(entry).values() if isinstance(term, str)}
    events = {event for entry in entries for event in entry.events}
    assert set(CHOICES) <= terms | events


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_on_the_page_is_valid(block):
    assert parse_allowlist(block).entries


def test_the_table_of_the_page_lists_every_key_with_its_levels():
    rows = re.findall(r"^\| `(\w+)` \| (L[L1-4 ]+) \|", PAGE, re.MULTILINE)
    assert {name: levels.split() for name, levels in rows} == {
        name: [level.name for level in Level if level in key.levels] for name, key in ENTRY_KEYS.items()
    }


def test_the_messages_on_the_page_are_the_parsers():
    text = "\n\nL2:\n- {repo: example-org/cpu, oncall: alice}\n\n\n\n\n- Example-Org/CPU"
    with pytest.raises(AllowlistError) as caught:
        parse_allowlist(text)
    for problem in caught.value.problems:
        assert f"\n{problem}\n" in PAGE


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
