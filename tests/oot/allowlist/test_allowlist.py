"""None"""

import re
from pathlib import Path

import pytest

from bot.oot.allowlist import entry as allowlist_entry
from bot.oot.allowlist.allowlist import Allowlist, parse_allowlist
from bot.oot.allowlist.entry import ENTRY_KEYS, Entry, Level
from bot.oot.allowlist.yaml_document import AllowlistError


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
