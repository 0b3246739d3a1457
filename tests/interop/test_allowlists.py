"""Today's parser of the allowlist, written after what it is known to take, to be held against ours.

A file is a mapping of L1 to L4, each of which may be missing or empty. L1, L2 and L4 are lists whose items are
`owner/repo` or a mapping of one `owner/repo` to what is said of it; L3 maps devices to mappings of `owner/repo` to the
same. Said of a repository are its on-calls (a list, or a text with commas), or a mapping of `oncalls` and `events` and
nothing else. `events` is a list of `pull_request` and `nightly`, without repetition; both, if it is left out. A
repository comes once in the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as drawing
from hypothesis import strategies as st

from bot.core import files
from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.yaml_document import AllowlistError
from tests.harness import L1, L2, L3, L4, UPSTREAM, running
from tests.interop import client
from tests.oot.allowlist.test_allowlist_schema import SCHEMA, Plain, fits
from tests.serving import SQLITE

pytestmark = pytest.mark.logic

EVENTS = ("pull_request", "nightly")


class RefusedError(Exception):
    """The file is not taken."""


class Listed(NamedTuple):
    """What is known of a repository; pushes are sent to whoever gets pull requests."""

    level: str
    device: str | None
    oncalls: tuple[str, ...]
    dispatched: bool


def read_as_today(text):
    """Return what a file says of each repository; RefusedError if it is not taken."""
    file = yaml.safe_load(text) or {}
    demand(isinstance(file, dict))
    found = {}
    for level in ("L1", "L2", "L4"):
        section = file.get(level) or []
        demand(isinstance(section, list))
        for item in section:
            if isinstance(item, dict):
                demand(len(item) == 1)
            for repo, said in item.items() if isinstance(item, dict) else [(item, None)]:
                add(found, repo, said, level, None)
    devices = file.get("L3") or {}
    demand(isinstance(devices, dict))
    for device, repos in devices.items():
        demand(str(device).strip() and isinstance(repos, dict))
        for repo, said in repos.items():
            add(found, repo, said, "L3", str(device).strip())
    return found


def add(found, repo, said, level, device):
    demand(isinstance(repo, str))
    name = repo.strip().strip("/")
    demand("/" in name and name not in found)
    if isinstance(said, dict):
        demand(said.keys() <= {"oncalls", "events"})
        oncalls, events = said.get("oncalls"), said.get("events")
    else:
        oncalls, events = said, None
    found[name] = Listed(level, device, people(oncalls), "pull_request" in named(events))


def people(said):
    if said is None:
        return ()
    demand(isinstance(said, str | list))
    words = said.split(",") if isinstance(said, str) else map(str, said)
    return tuple(word.strip() for word in words if word.strip())


def named(events):
    if events is None:
        return EVENTS
    demand(isinstance(events, list) and events)
    demand(all(isinstance(event, str) and event.strip() in EVENTS for event in events))
    demand(len({event.strip() for event in events}) == len(events))
    return [event.strip() for event in events]


def demand(condition):
    if not condition:
        raise RefusedError


# Whatever today's parser of the allowlist takes is taken under the preset, and means the same.


PRESET = frozenset({"pull_request", "push"})
PAGE = (Path(__file__).parents[2] / "docs" / "migrate-from-crcr.md").read_text()


def once(people):
    """Return people as they are mentioned: each once, however often they are named."""
    found = {}
    for person in people:
        found.setdefault(person.casefold(), person)
    return tuple(found.values())


def theirs(text):
    """Return what today's parser reads."""
    return {
        repo: listed._replace(oncalls=once(listed.oncalls)) for repo, listed in read_as_today(text).items()
    }


def ours(text):
    """Return what our parser reads under the preset, in the words of today's."""
    found = {}
    for entry in parse_allowlist(text, PRESET).entries:
        dispatched = entry.wants("pull_request")
        for ref in ("refs/heads/main", "refs/tags/ciflow/trunk/7"):
            assert entry.wants("push", ref) is dispatched
        assert entry.deletions is dispatched
        found[entry.repo] = Listed(f"L{entry.level}", entry.device, entry.oncalls, dispatched)
    return found


def refusal(text, events=PRESET):
    with pytest.raises(AllowlistError) as refused:
        parse_allowlist(text, events)
    return str(refused.value)


PEOPLE = st.lists(st.sampled_from(["alice", "b-ob", "carol9", "Dave", "dave", "77"]), max_size=3)
NUMBERED = PEOPLE.map(lambda people: [int(one) if one.isdigit() else one for one in people])
ONCALLS = (
    st.none()
    | PEOPLE
    | NUMBERED
    | PEOPLE.map(", ".join)
    | PEOPLE.map(lambda people: f" {' , '.join(people)},")
)
SAID = ONCALLS | st.fixed_dictionaries(
    {},
    optional={
        "oncalls": ONCALLS,
        "events": st.none() | st.lists(st.sampled_from(EVENTS), unique=True, min_size=1),
    },
)
REPOS = [f"{owner}/{name}" for owner in ("org", "an-org", "o9") for name in ("a", "b.c", "D_e", "-f", "9.g")]
DEVICE = st.sampled_from(["npu", "NPU", "tpu", "910b", 910, "x.y-z", "riscv_64", "d" * 50])
WRONG = {"oncall": "x"}, {"events": []}, {"events": ["push"]}, {"events": ["nightly", "nightly"]}


@st.composite
def drawn_files(draw, *, right=True):
    """Draw a file in today's grammar; if it need not be right, a repository may come twice, or have a wrong key."""
    repos = draw(st.lists(st.sampled_from(REPOS), unique=True, max_size=6))
    said = SAID if right else SAID | st.sampled_from(WRONG)
    file = {level: [] for level in draw(st.sets(st.sampled_from(["L1", "L2", "L4"]), min_size=1))}
    devices = {device: {} for device in draw(st.sets(DEVICE, max_size=3))}
    for repo in repos if right else repos + repos[:1]:
        place = draw(st.sampled_from([*file.values(), *devices.values()]))
        if isinstance(place, dict):
            place[repo] = draw(said)
        else:
            place.append(draw(st.just(repo) | said.map(lambda one, repo=repo: {repo: one})))
    nothing = st.sampled_from([None, [], {}])
    empty = {level: draw(nothing) for level, entries in file.items() if not entries}
    return file | empty | ({"L3": devices or draw(nothing)} if devices or draw(st.booleans()) else {})


@st.composite
def written(draw, drawn):
    """Draw a file, and a text that says the same in one of the ways of YAML."""
    file = draw(drawn)
    flow, indent, width = draw(
        st.tuples(st.sampled_from([None, False, True]), st.integers(2, 6), st.just(60))
    )
    text = yaml.dump(file, Dumper=Plain, sort_keys=False, default_flow_style=flow, indent=indent, width=width)
    begin = draw(st.sampled_from(["", "---\n", "# who takes part\n\n", "\ufeff", "%YAML 1.1\n---\n"]))
    end = draw(st.sampled_from(["", "# no more\n", "...\n", "\n  \n"]))
    return file, (begin + text + end).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def read_alike(drawn):
    file, text = drawn
    assert ours(text) == theirs(text)
    assert fits(file, SCHEMA)


def accepted_here_if_there(drawn):
    file, text = drawn
    try:
        wanted = theirs(text)
    except RefusedError:
        return
    assert ours(text) == wanted
    assert fits(file, SCHEMA)


@drawing(max_examples=40)
@given(written(drawn_files()))
def test_both_parsers_read_a_file_the_same_way(drawn):
    read_alike(drawn)


@drawing(max_examples=20)
@given(written(drawn_files(right=False)))
def test_what_they_take_we_take(drawn):
    accepted_here_if_there(drawn)


def test_a_hundred_repositories_of_one_device():
    text = yaml.safe_dump({"L3": {"npu": {f"org/npu-{number}": ["alice"] for number in range(100)}}})
    assert ours(text) == theirs(text)
    assert {entry.label for entry in parse_allowlist(text).entries} == {
        f"org/npu-{number}" for number in range(100)
    }


@pytest.mark.nightly
@drawing(max_examples=2000)
@given(written(drawn_files()))
def test_both_parsers_read_many_files_the_same_way(drawn):
    read_alike(drawn)


@pytest.mark.nightly
@drawing(max_examples=2000)
@given(written(drawn_files(right=False)))
def test_of_many_files_all_that_they_take_we_take(drawn):
    accepted_here_if_there(drawn)


def differing():
    """Return the files of the page's list of differences, by what it says of each."""
    section = PAGE.partition("### Files that are read differently")[2].partition("\n#")[0]
    return re.findall(r"^\| (.*?) \| `(.*?)` \|$", section, re.MULTILINE)


def test_the_page_lists_files_that_are_read_differently():
    assert len(differing()) >= 6


@pytest.mark.parametrize(("what", "text"), differing())
def test_what_the_page_says_is_refused_here_is_taken_today(what, text):
    text = text.replace("\\n", "\n")
    read_as_today(text)
    assert refusal(text), what


def test_words_that_yaml_reads_otherwise_are_as_the_page_says():
    """A word in quotes is the same to both."""
    found = re.findall(r"`(\S+)` and not `(\S+)`", PAGE.partition("### Files that are read differently")[2])
    assert len(found) >= 2
    for here, there in found:
        text = f"L3: {{{here}: {{org/a: [{here.replace('.', '')}]}}}}"
        assert ours(text)["org/a"].device == here
        assert theirs(text)["org/a"].device == there
        quoted = text.replace(f"{here}:", f"'{here}':")
        assert ours(quoted)["org/a"].device == theirs(quoted)["org/a"].device == here


@pytest.mark.parametrize(
    ("text", "hint", "followed"),
    [
        ("L4: {npu: {a/b: , c/d: }}", "give each a device of its own", "L4: {npu: {a/b: }, npu2: {c/d: }}"),
        ("L4: {npu: [a/b, c/d]}", "give each a device of its own", "L4: {npu: a/b, npu2: c/d}"),
        ("L3: {npu: [a/b, c/d]}", "write each as `owner/repo:` below it", "L3: {npu: {a/b: , c/d: }}"),
        ("L3: [{a/b: , c/d: }]", "put their device's name above them", "L3: [{npu: {a/b: , c/d: }}]"),
        ("L3: {a/b: alice}", "put its device's name above it", "L3: {npu: {a/b: alice}}"),
        (
            "L3: {npu: {a/b: , c: }}",
            "`c` is not a repository: write `owner/repo`",
            "L3: {npu: {a/b: , c/d: }}",
        ),
        ("L2: [{a/b: , c/d: }]", "begin each repository with its own `- `", "L2: [a/b, c/d]"),
    ],
)
def test_who_follows_a_hint_meets_no_other_error(text, hint, followed):
    for events in (frozenset({"pull_request"}), PRESET):
        assert hint in refusal(text, events)
        assert "or write it below" not in refusal(text, events)
        parse_allowlist(followed, events)


@pytest.mark.parametrize("level", ["L1", "L4"])
def test_nightlies_alone_are_an_error_without_the_preset(level):
    text = f"{level}: [{{org/a: {{events: [nightly]}}}}]"
    assert not parse_allowlist(text, PRESET).entries[0].wants("pull_request")
    with pytest.raises(AllowlistError):
        parse_allowlist(text)


FLEET = f"""
L1: [{{{L1}: {{events: [nightly]}}}}]
L2: [{{{L2}: {{events: [pull_request, nightly]}}}}]
L3: {{npu: {{{L3}: [carol], org/second: {{oncalls: dave}}}}}}
L4: [{{{L4}: {{events: [nightly], oncalls: [erin]}}}}]
"""


@SQLITE
async def test_a_list_of_today_is_in_force_from_the_first_start(settings, github, issuer, clock, tmp_path):
    github.add_repo("org/second")
    (tmp_path / "allowlist.yml").write_text(FLEET)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        assert (await bot.get("/readyz"))[0] == 200
        await dispatch_and_report(bot, github)


async def dispatch_and_report(bot, github):
    """Dispatch a pull request and a tag to the fleet, and report from both repositories of its device."""
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/crcr/npu"])
    await github.push(UPSTREAM, "refs/tags/v1")
    await bot.settle()
    sent = sorted((one.repo.full_name, one.client_payload["event_type"]) for one in github.dispatches)
    both = [(repo, event) for repo in (L2, L3, "org/second") for event in ("pull_request", "push")]
    assert sent == sorted(both)
    for repo in (L3, "org/second"):
        (dispatch,) = [
            one for one in github.dispatches
            if one.repo.full_name == repo and one.client_payload["event_type"] == "pull_request"
        ]  # fmt: skip
        await client.of(bot, dispatch).ended("success" if repo == L3 else "failure")
    await bot.settle()
    jobs = {name: seen[1] for name, seen in bot.checks(UPSTREAM, pull.head_sha).items() if "crcr/" in name}
    assert jobs == {f"crcr/{L3}/CI/build": "success", "crcr/org/second/CI/build": "failure"}


# docs/migrate-from-crcr.md against the program: options of the preset, the allowlist's form, addresses.


TABLE = PAGE.partition("## Today and here")[2].partition("## Order of steps")[0]


def test_every_option_of_the_preset_has_a_line_and_no_other_has():
    by = re.findall(r"\| (?:`([A-Z_]+)`|always) \|$", TABLE, re.MULTILINE)
    assert {name for name in by if name} == {name.upper() for name in files.read_presets()["crcr"]}


@SQLITE
@pytest.mark.parametrize("preset", ["crcr", None])
async def test_what_is_said_to_hold_always_does_without_the_preset(bot, preset):
    for path in ("/crcr", f"/crcr/{L2}", "/api/crcr/allowlist"):
        assert (await bot.get(path))[0] == 200
    for path in ("/api/crcr/results", "/crcr/results", "/api/oot/results"):
        status, answer = await bot.request("POST", path, data="{}")
        assert (status, answer["error"]) == (404, "not_found")  # closed, as RELAY_TOKEN is not set
