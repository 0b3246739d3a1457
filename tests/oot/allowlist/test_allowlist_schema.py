"""Does the schema accept what the parser accepts? Checked by as much of JSON Schema as it uses."""

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.core import setting_types
from bot.core.settings import PULL_ACTIONS
from bot.oot.allowlist import entry, yaml_document
from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.entry import ENTRY_KEYS, MAX_ID, MAX_RATE, RESERVED_DEVICES, Level
from bot.oot.allowlist.yaml_document import AllowlistError

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config/allowlist.example.yml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/allowlist.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs/allowlist.schema.json").read_text(encoding="utf-8"))
DEFS = SCHEMA["$defs"]


class Plain(yaml.SafeDumper):
    """Writes what is in a document twice twice, without aliases."""

    def ignore_aliases(self, data):
        return True


def parses(text, *default_events):
    try:
        parse_allowlist(text, *default_events)
    except AllowlistError:
        return False
    return True


CHOICES = {
    "policy": entry.POLICIES,
    "checks": entry.CHECKS,
    "conclusion": entry.CONCLUSIONS,
    "callback_token": entry.CALLBACK_TOKENS,
    "static_key": entry.STATIC_KEYS,
    "answers": entry.ANSWERS,
    "nightly": entry.NIGHTLY,
    "dispatch": entry.DISPATCHES,
}


def test_the_schema_has_the_parsers_keys_at_every_level():
    assert list(DEFS["keys"]["properties"]) == list(ENTRY_KEYS)
    for level in Level:
        here = [name for name, key in ENTRY_KEYS.items() if level in key.levels]
        assert DEFS[f"level_{level.name}"]["propertyNames"]["enum"] == here
    assert set(DEFS["reserved"]["enum"]) == RESERVED_DEVICES


def test_the_schema_has_the_parsers_choices_and_bounds():
    keys = DEFS["keys"]["properties"]
    assert {name: tuple(keys[name]["enum"]) for name in CHOICES} == CHOICES
    assert tuple(keys["events"]["anyOf"][2]["items"]["enum"]) == entry.EVENTS
    assert tuple(keys["actions"]["anyOf"][1]["items"]["enum"]) == PULL_ACTIONS
    assert (keys["repository_id"]["maximum"], keys["rate_limit"]["maximum"]) == (MAX_ID, MAX_RATE)
    assert keys["max_per_day"]["maximum"] == entry.MAX_PER_DAY
    assert keys["max_parallel"]["maximum"] == entry.MAX_PARALLEL
    assert keys["paths"]["anyOf"][1]["maxItems"] == yaml_document.MOST_GLOBS
    assert DEFS["labels"]["anyOf"][1]["maxItems"] == entry.MOST_LABELS


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("repo", yaml_document.REPO),
        ("login", yaml_document.LOGIN),
        ("device", yaml_document.DEVICE),
        ("ref", yaml_document.REF),
        ("workflow_file", yaml_document.WORKFLOW_FILE),
        ("duration", setting_types.DURATION),
    ],
)
def test_the_schema_has_the_parsers_patterns(name, pattern):
    assert DEFS[name]["pattern"] == f"^{pattern}$"


TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
}


def fits(value, schema):
    """Whether a value fits a schema: as much of JSON Schema as ours uses; KeyError beyond that."""
    return all(
        RULES[word](value, rule, schema)
        for word, rule in schema.items()
        if word not in {"$schema", "$defs", "title", "description", "then", "else"}
    )


def listed(value):
    return value if isinstance(value, list) else []


def mapped(value):
    return value if isinstance(value, dict) else {}


def branch(value, rule, schema):
    return fits(value, schema["then" if fits(value, rule) else "else"])


RULES = {
    "$ref": lambda value, rule, _: fits(value, DEFS[rule.removeprefix("#/$defs/")]),
    "type": lambda value, rule, _: any(
        TYPES[name](value) for name in ([rule] if isinstance(rule, str) else rule)
    ),
    "enum": lambda value, rule, _: value in rule,
    "const": lambda value, rule, _: value == rule,
    "pattern": lambda value, rule, _: not isinstance(value, str) or bool(re.search(rule, value)),
    "minimum": lambda value, rule, _: not TYPES["integer"](value) or value >= rule,
    "maximum": lambda value, rule, _: not TYPES["integer"](value) or value <= rule,
    "items": lambda value, rule, _: all(fits(item, rule) for item in listed(value)),
    "maxItems": lambda value, rule, _: not isinstance(value, list) or len(value) <= rule,
    "minItems": lambda value, rule, _: not isinstance(value, list) or len(value) >= rule,
    "properties": lambda value, rule, _: all(
        fits(mapped(value)[name], rule[name]) for name in rule if name in mapped(value)
    ),
    "additionalProperties": lambda value, rule, schema: all(
        rule is not False and fits(item, rule)
        for name, item in mapped(value).items()
        if name not in schema.get("properties", {})
    ),
    "propertyNames": lambda value, rule, _: all(fits(name, rule) for name in mapped(value)),
    "minProperties": lambda value, rule, _: not isinstance(value, dict) or len(value) >= rule,
    "maxProperties": lambda value, rule, _: not isinstance(value, dict) or len(value) <= rule,
    "required": lambda value, rule, _: not isinstance(value, dict) or set(rule) <= set(value),
    "dependentRequired": lambda value, rule, _: all(
        set(rule[name]) <= set(value) for name in rule if name in mapped(value)
    ),
    "allOf": lambda value, rule, _: all(fits(value, each) for each in rule),
    "anyOf": lambda value, rule, _: any(fits(value, each) for each in rule),
    "not": lambda value, rule, _: not fits(value, rule),
    "if": branch,
}


@pytest.mark.parametrize("text", [EXAMPLE, *re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)])
def test_the_schema_accepts_the_example_and_the_page(text):
    assert fits(yaml.safe_load(text), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[org/a]",
        "L5: []",
        "L1: {org/a: alice}",
        "L1: [org]",
        "L1: [{}]",
        "L1: [{org/a: x, org/b: y}]",
        "L1: [{org/a: 'al.ice'}]",
        "L1: [{org/a: {repo: org/a}}]",
        "L1: [{policy: all}]",
        "L1: [{repo: org/a, oncall: x}]",
        "L1: [{repo: org/a, checks: jobs}]",
        "L2: [{repo: org/a, device: npu}]",
        "L2: [{repo: org/a, policy: some}]",
        "L2: [{repo: org/a, rate_limit: 0}]",
        "L2: [{repo: org/a, rate_limit: '5'}]",
        "L2: [{repo: org/a, job_timeout: 5}]",
        "L2: [{repo: org/a, events: []}]",
        "L2: [{repo: org/a, dispatch: workflow}]",
        "L2: [{repo: org/a, workflow_file: ci.yml}]",
        "L2: [{npu: org/a}]",
        "L3: [org/a]",
        "L3: [{repo: org/a}]",
        "L3: {npu: [org/a]}",
        "L3: {gate: org/a}",
        "L3: {npu: }",
        "L4: {org/a: alice}",
        "L4: [{repo: org/a, conclusion: failure}]",
        "L4: [{repo: org/a, confirm: 'true'}]",
        "L4: [{repo: org/a, answers: some}]",
        "L1: [{repo: org/a, answers: all}]",
        "L1: [{repo: org/a, nightly: refused}]",
        "L2: [{repo: org/a, actions: [labeled]}]",
        "L2: [{repo: org/a, actions: []}]",
        "L2: [{repo: org/a, events: [push], deletions: 'true'}]",
        "L2: [{repo: org/a, paths: []}]",
        "L2: [{repo: org/a, paths: ['#a']}]",
        "L2: [{repo: org/a, paths: ['a.{c,h}']}]",
        "L2: [{repo: org/a, paths_pass: true}]",
        "L4: [{repo: org/a, paths_pass: true}]",
        "L4: [{repo: org/a, labels: [x]}]",
        "L4: [{repo: org/a, branches: [main]}]",
        "L4: [{repo: org/a, skip_if_same_tree: true}]",
        "L1: [{repo: org/a, max_parallel: 1}]",
        "L2: [{repo: org/a, max_per_day: 0}]",
        "L2: [{repo: org/a, max_parallel: '2'}]",
        "L2: [{repo: org/a, events: [push], sample: 10}]",
        "L2: [{repo: org/a, events: [push], sample: 0%}]",
        "L2: [{repo: org/a, draft: 'no'}]",
        "L2: [{repo: org/a, labels: []}]",
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(text):
    assert not parses(text)
    assert not fits(yaml.safe_load(text), SCHEMA)


REPOS = st.sampled_from(["org/a", "org/b", "org/c", "org/d"])
LOGINS = st.sampled_from([None, "alice", "alice, @bob", ["alice", "@bob"], []])
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "repository_id": st.integers(0, 3),
        "device": st.sampled_from(["x", "y", "gate"]),
        "oncalls": LOGINS,
        "events": st.sampled_from([None, "push", "pull_request, push", ["pull_request"], ["nightly"]]),
        "refs": st.sampled_from(["main", ["release/*"]]),
        "aka": st.sampled_from(["npu", "npu, ascend", ["npu"], [], ["a b"]]),
        "policy": st.sampled_from([*entry.POLICIES]),
        "checks": st.sampled_from([*entry.CHECKS]),
        "conclusion": st.sampled_from([*entry.CONCLUSIONS]),
        "confirm": st.booleans(),
        "callback_token": st.sampled_from([*entry.CALLBACK_TOKENS]),
        "static_key": st.sampled_from([*entry.STATIC_KEYS]),
        "answers": st.sampled_from([*entry.ANSWERS]),
        "actions": st.sampled_from(["opened", ["opened", "reopened", "synchronize"], []]),
        "deletions": st.booleans(),
        "nightly": st.sampled_from([*entry.NIGHTLY]),
        "dispatch": st.sampled_from([*entry.DISPATCHES]),
        "workflow_file": st.just("ci.yml"),
        "job_timeout": st.sampled_from(["1h", "35d"]),
        "paths": st.sampled_from(["src/**", ["**", "!docs/**"], ["!docs/**"], []]),
        "paths_pass": st.booleans(),
        "labels": st.sampled_from(["gpu", ["gpu", "npu"], []]),
        "not_labels": st.sampled_from(["gpu", ["wip"]]),
        "draft": st.booleans(),
        "max_per_day": st.integers(0, 3),
        "max_parallel": st.integers(0, 3),
        "sample": st.sampled_from(["1%", "100%", "0%"]),
        "branches": st.sampled_from(["main", ["release/*"]]),
        "skip_if_same_tree": st.booleans(),
    },
)
BACKENDS = (
    REPOS
    | st.dictionaries(REPOS, LOGINS | TERMS, min_size=1, max_size=1)
    | st.builds(lambda repo, terms: {"repo": repo, **terms}, REPOS, TERMS)
)
SEVERAL = st.dictionaries(REPOS, LOGINS | TERMS, max_size=3)
DEVICES = st.dictionaries(st.sampled_from(["npu", "tpu"]), BACKENDS | SEVERAL, min_size=1, max_size=2)
FILES = st.dictionaries(
    st.sampled_from(["L1", "L2", "L3", "L4"]),
    st.none() | st.just({}) | st.lists(BACKENDS | DEVICES, max_size=2) | DEVICES,
    min_size=1,
    max_size=2,
)


@settings(max_examples=300)
@given(FILES)
def test_the_schema_accepts_whatever_the_parser_accepts(document):
    text = yaml.safe_dump(document)
    if parses(text) or parses(text, frozenset({"pull_request", "push"})):
        assert fits(document, SCHEMA)


ONLY_THE_PARSER = re.compile(  # says this; the page lists it under "What is refused"
    r"is already on line|is \S+ here and \S+ above: keep one|is refused here and among the `events`"
    r"|is about pull requests: add|means nothing at L1"  # without a DEFAULT_EVENTS of the relay
    r"|about pull requests, and none are asked for|a gate would wait for commits"
    r"|is wanted and refused at once|takes away from nothing"
)


@pytest.mark.nightly
@settings(max_examples=3000)
@given(FILES)
def test_the_parser_refuses_nothing_else_that_the_schema_accepts(document):
    text = yaml.dump(document, Dumper=Plain)
    if fits(document, SCHEMA):
        try:
            parse_allowlist(text, frozenset({"pull_request", "push"}))
        except AllowlistError as error:
            unknown = [one.message for one in error.problems if not ONLY_THE_PARSER.search(one.message)]
            assert not unknown
