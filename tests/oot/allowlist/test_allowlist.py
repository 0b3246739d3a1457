from __future__ import annotations

import pytest

from bot.oot.allowlist.allowlist import Allowlist, parse_allowlist
from bot.oot.allowlist.entry import Entry, Level


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
