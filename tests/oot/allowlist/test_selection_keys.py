"""The keys of an entry that say what is worth running: what they hold, and every way to write them wrongly."""

import pytest

from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.yaml_document import MOST_GLOBS, AllowlistError, find_match

HEAD = "L2:\n- repo: org/a\n  events: [pull_request, push]\n"


def problem(text):
    with pytest.raises(AllowlistError) as refused:
        parse_allowlist(text)
    (only,) = refused.value.problems
    return str(only)


def test_all_of_them_are_read():
    (entry,) = parse_allowlist(
        f"""{HEAD}
  paths: ["src/**", "!**/*.md"]
  labels: gpu, GPU, npu
  not_labels: [wip]
  draft: false
  max_per_day: 20
  max_parallel: 2
  sample: 10%
  branches: [main, "release/*"]
  skip_if_same_tree: true
"""
    ).entries
    assert entry.paths == ("src/**", "!**/*.md")
    assert (entry.labels, entry.not_labels, entry.draft) == (("GPU", "npu"), ("wip",), False)
    assert (entry.max_per_day, entry.max_parallel, entry.sample) == (20, 2, 10)
    assert (entry.branches, entry.skip_if_same_tree) == (("main", "release/*"), True)
    assert entry.selective
    assert entry.limited


def test_without_them_every_event_is_run_at_once():
    (entry,) = parse_allowlist(HEAD).entries
    assert not entry.selective
    assert not entry.limited


@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("", "is no glob: write up to 255 characters of a path"),
        ("a" * 256, "is no glob: write up to 255 characters of a path"),
        (" a", "is no glob: write up to 255 characters of a path"),
        ("#a", "is a comment in this notation"),
        ("./src", "matches no file: write the path from the top of the repository"),
        ("!../src", "matches no file"),
        ("src/*.{c,h}", "has braces, which are no alternatives in this notation: write one glob for each"),
        ("a//b", "is no glob: write a path with * ? [] ** as wildcards"),
        ("/", "is no glob"),
        ("[z-a]", "is no glob"),
        ("[[:digit:]]", "is no glob"),
        ("a\\\\", "is no glob"),
    ],
)
def test_an_invalid_glob_names_its_line(glob, why):
    message = problem(f'{HEAD}  paths:\n  - src/**\n  - "{glob}"\n')
    assert message.startswith("line 6: ")
    assert why in message


def test_a_list_that_only_takes_away_matches_nothing_and_is_refused():
    message = problem(f'{HEAD}  paths: ["!docs/**"]\n')
    assert message == "line 4: the first glob takes away from nothing: write `**` before it"


def test_so_many_globs_and_no_more():
    many = "".join(f"  - src/{number}/**\n" for number in range(MOST_GLOBS))
    assert len(parse_allowlist(f"{HEAD}  paths:\n{many}").entries[0].paths) == MOST_GLOBS
    message = problem(f"{HEAD}  paths:\n{many}  - one/more\n")
    assert (
        message == f"line {MOST_GLOBS + 5}: more than {MOST_GLOBS} globs: write shorter ones for more files"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}  paths: []", "line 4: the list is empty: name at least one glob, or leave the key out"),
        (f"{HEAD}  labels: []", "line 4: the list is empty: name at least one label, or leave the key out"),
        (f"{HEAD}  labels: [{'x' * 51}]", "is no label: write up to 50 characters without commas"),
        (f"{HEAD}  labels: {[f'l{one}' for one in range(51)]}", "line 4: more than 50 labels: shorten the list"),
        (f"{HEAD}  labels: [a]\n  not_labels: [A]", "line 5: `A` is wanted and refused at once"),
        (f"{HEAD}  draft: no", "line 4: `no` is not true or false"),
        (f"{HEAD}  max_per_day: 0", "line 4: `0` is not a whole number from 1 to 100000"),
        (f"{HEAD}  max_parallel: 1001", "line 4: `1001` is not a whole number from 1 to 1000"),
        (f"{HEAD}  sample: 10", "line 4: `10` is no share of the commits: write 1% to 100%, as in `10%`"),
        (f"{HEAD}  sample: 101%", "is no share of the commits"),
        (f"{HEAD}  branches: ['a b']", "`a b` is no pattern of refs"),
        (f"{HEAD}  paths_pass: true", "`paths_pass` means nothing at L2, only L4 has a gate to pass: remove it"),
        ("L4: [{repo: org/a, paths_pass: true}]", "`paths_pass` is about `paths`, and there are none"),
        ("L4: [{repo: org/a, labels: a}]", "means nothing at L4, its gate waits for it on every pull request"),
        ("L4: [{repo: org/a, branches: a}]", "means nothing at L4, its gate waits for it on every pull request"),
        ("L4: [{repo: org/a, skip_if_same_tree: true}]", "a gate passes by a run of its own: remove it"),
        ("L1: [{repo: org/a, max_parallel: 1}]", "means nothing at L1, L1 does not report when it has ended"),
        ("L2: [{repo: org/a, sample: 5%}]", "`sample` is about pushes, and none are asked for"),
        ("L2: [{repo: org/a, events: push, draft: false}]", "`draft` is about pull requests, and none are"),
        ("L2: [{repo: org/a, path: [a]}]", "`path` is no key of an entry: did you mean `paths`?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text, message):
    assert message in problem(text)


@pytest.mark.parametrize(
    ("globs", "path", "matches"),
    [
        (["docs"], "docs/a/b.md", True),
        (["docs"], "src/docs/a.md", True),
        (["/docs"], "src/docs/a.md", False),
        (["docs/*"], "docs/a/b.md", False),
        (["*.py"], "a/b/c.py", True),
        (["**", "!docs/**"], "docs/a", False),
        (["**", "!docs/**", "docs/build.py"], "docs/build.py", True),
        (["\\!a"], "!a", True),
        (["src/**"], "src/line\nbreak", True),
        (["a*b*c*d*e*f*g*h*"], "a" * 200 + "/x", False),
    ],
)
def test_the_last_glob_that_matches_a_path_decides(globs, path, matches):
    assert (find_match(tuple(globs), [path]) is not None) is matches
