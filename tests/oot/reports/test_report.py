"""What is read out of a report and out of a relay's envelope, and how is it cut?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.core.json_fields import as_commit
from bot.oot.reports.report import (
    MOST_DEPTH,
    UNREADABLE,
    Echo,
    Malformed,
    parse_envelope,
    parse_report,
    split_batch,
    too_deep,
)


def body(**workflow):
    said = {"status": "completed", "conclusion": "success", "name": "CI", "job_name": "build", "run_id": "9"}
    return {
        "delivery_id": "d",
        "workflow": {name: value for name, value in (said | workflow).items() if value != ...},
    }


def read(made=None, **workflow):
    return parse_report(json.dumps(made or body(**workflow)).encode())


def test_the_least_a_report_may_say():
    report = read()
    assert (report.job["status"], report.job["conclusion"]) == ("completed", "success")
    assert (report.job["run_attempt"], report.job["check_run_id"], report.callback_token) == (1, None, None)
    assert (
        report.job["total_tests"],
        report.job["failed_tests_json"],
        report.job["environment"],
        report.flags,
    ) == (None, None, None, {})


@pytest.mark.parametrize(
    ("given_id", "kept"), [(0, "0"), (900, "900"), ("900", "900"), ("8d0c-41", "8d0c-41"), ("a/b:c", "a/b:c")]
)
def test_u10_ids_are_texts_whatever_they_were(given_id, kept):
    assert read(run_id=given_id).job["run_id"] == kept
    assert read(check_run_id=given_id).job["check_run_id"] == kept


@pytest.mark.parametrize(
    "name", ["build:cuda", "a / b", "  ", "测试 🚀", "x" * 300, "'; DROP TABLE", "${{ x }}"]
)
def test_names_are_kept_as_they_are(name):
    report = read(name=name, job_name=name)
    assert (report.job["workflow_name"], report.job["job_name"]) == (name, name)


def test_a_conclusion_before_the_end_means_nothing():
    assert read(status="in_progress", conclusion="success").job["conclusion"] is None


def test_the_total_is_what_was_said_or_the_sum_of_what_was():
    assert read(test_results={"passed": 2, "failed": 1}).job["total_tests"] == 3
    assert read(test_results={"passed": 2, "total": 9}).job["total_tests"] == 9
    assert read(test_results={}).job["total_tests"] is None


def test_failed_tests_are_cut_and_the_rest_is_counted():
    long = {"name": "n" * 5000, "message": "m" * 5000, "stacktrace": "s" * 9000, "line": 2**70}
    report = read(failed_tests=[long] * 1001)
    assert len(report.job["failed_tests_json"]) == 1000
    assert report.flags == {"failed_tests_dropped": 1, "line_dropped": True}
    kept = report.job["failed_tests_json"][0]
    assert {name: len(value) for name, value in kept.items()} == {
        "name": 1024,
        "message": 1024,
        "stacktrace": 4096,
    }


def test_texts_are_cut_by_bytes_and_never_in_the_middle_of_a_letter():
    (kept,) = read(failed_tests=[{"name": "🚀" * 1000, "message": "a" + "é" * 1000}]).job["failed_tests_json"]
    assert kept["name"] == "🚀" * 256
    assert kept["message"] == "a" + "é" * 511


def test_of_names_with_many_bytes_a_hash_stands_for_the_end():
    names = [read(job_name="測" * 999 + end).job["job_name"] for end in ("測", "試", "測")]
    assert names[0] == names[2] != names[1]
    assert {len(name.encode()) <= 1000 and name.startswith("測" * 300) for name in names} == {True}
    assert read(job_name="測" * 333).job["job_name"] == "測" * 333


@pytest.mark.parametrize("url", [
    "javascript:alert(1)", "data:text/html,x", "ftp://a/b", "//a/b", "https://", "https://u:p@a/", "https://a\\b", "https://a/ b",
    "https://a/\nb", "https://a/\u202e", "https://[::1", "https://a:99999999/", "x" * 3000, "https://a/" + "b" * 3000,
])  # fmt: skip
def test_u16_addresses_nobody_should_follow_are_dropped_and_said_to_be(url):
    report = read(url=url, artifact_url=url)
    assert (report.job["workflow_run_url"], report.job["artifact_url"]) == (None, None)
    assert report.flags == {"url_dropped": True, "artifact_url_dropped": True}


def test_good_addresses_are_kept():
    for url in ("https://ci.example/1?a=b#c", "http://[2001:db8::1]:8080/x", "https://例え.jp/"):
        assert read(url=url).job["workflow_run_url"] == url


def test_the_environment_is_words():
    found = read(environment={"driver": 24.1, "list": [1, {"a": None}], "x" * 500: "y" * 900}).job[
        "environment"
    ]
    assert found == {"driver": "24.1", "list": "[1, {'a': None}]", "x" * 100: "y" * 500}
    assert len(read(environment={str(n): n for n in range(80)}).job["environment"]) == 50
    long = read(environment={f"{n:\U0001f600>90}": "\U0001f600" * 500 for n in range(50)}).job["environment"]
    assert 1 <= sum(len((name + value).encode()) for name, value in long.items()) <= 4_000


def test_what_the_dispatch_was_about_is_read_as_claimed():
    pull = {"number": 7, "head": {"sha": "f" * 40}, "labels": [{"name": "a"}, {"name": "b"}]}
    said = body() | {"payload": {"pull_request": pull, "repository": {"full_name": "o/u"}}}
    echo = read(said).echo
    assert (echo.upstream_repo, echo.pr_number, echo.head_sha, echo.labels) == (
        "o/u",
        7,
        "f" * 40,
        {"a", "b"},
    )
    said["payload"]["truncated"] = ["pull_request.labels"]
    assert read(said).echo.labels is None


@pytest.mark.parametrize(
    "payload", [None, 7, "x", [], {"pull_request": []}, {"pull_request": {"labels": [1]}}, {"repository": 1}]
)
def test_an_echo_of_any_shape_is_no_error_in_a_report(payload):
    assert read(body() | {"payload": payload}).echo.pr_number in {None, UNREADABLE}


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"\\"]}":', b'{"\\\\":['])
def test_depth_is_counted_outside_of_strings_only(opening):
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"\\"]}":': b"}]", b'{"\\\\":[': b"]}"}[opening]
    each = len(closing)
    for depth in (MOST_DEPTH, MOST_DEPTH + each, 1000 * each):
        text = opening * (depth // each) + b"1" + closing * (depth // each)
        assert too_deep(text) is (depth > MOST_DEPTH)
    assert not too_deep(json.dumps(["[{" * 1000, '\\"[' * 1000]).encode())


@given(st.recursive(st.none() | st.text('[]{}\\"a', max_size=6), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.text('[]{}\\"', max_size=4), inner, max_size=3), max_leaves=60))  # fmt: skip
def test_depth_is_the_depth_of_the_value(value):
    def depth(one):
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inside is None else 1 + max(map(depth, inside), default=0)

    wrapped, levels = value, depth(value)
    while levels < MOST_DEPTH:
        wrapped, levels = [wrapped], levels + 1
    assert not too_deep(json.dumps(wrapped).encode())
    assert too_deep(json.dumps({"": wrapped}).encode())


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_malformed_and_nothing_worse(raw):
    for read_it in (parse_report, parse_envelope, split_batch):
        with pytest.raises(Malformed):
            read_it(raw)


def envelope(**report):
    payload = {"pull_request": {"number": 7, "head": {"sha": "A" * 40}}, "repository": {"full_name": "o/u"}}
    said = {"trusted": {"verified_repo": "org/a", "downstream_repo_level": "L3"},
            "untrusted": {"callback_payload": body() | {"payload": payload} | report}}  # fmt: skip
    return parse_envelope(json.dumps(said).encode())


def test_halves_of_letters_are_refused_unless_read_leniently():
    sent = json.dumps({"delivery_id": "d", "workflow": body()["workflow"] | {"url": "\ud800"}}).encode()
    with pytest.raises(Malformed):
        parse_report(sent)
    assert parse_report(sent, leniently=True).job["run_id"]
    with pytest.raises(Malformed):
        split_batch(b'{"reports": ["\\ud800"]}')


def about(found):
    return tuple(
        found.subject[name] for name in ("downstream_repo", "upstream_repo", "pr_number", "head_sha")
    )


def test_an_envelope_says_who_and_its_echo_says_about_what():
    found = envelope()
    assert (found.subject["downstream_repo"], found.level) == ("org/a", 3)
    assert found.measured == {"queue_time": None, "execution_time": None}
    assert about(found)[1:] == ("o/u", 7, "a" * 40)


def test_a_relayed_push_is_about_its_commit_and_a_nightly_about_its_delivery():
    repository = {"repository": {"full_name": "o/u"}}
    pushed = envelope(payload=repository | {"after": "b" * 40})
    assert about(pushed)[2:] == (None, "b" * 40)
    nightly = envelope(payload=repository, event_type="nightly", delivery_id="c" * 64)
    assert about(nightly)[2:] == (None, "c" * 64)


@pytest.mark.parametrize(
    "text", ["", "a" * 39, "a" * 41, "a" * 63, "g" * 40, " " + "a" * 40, "a" * 40 + "\n", None, 7, "٣" * 40]
)
def test_u13_what_is_no_commit_is_no_commit(text):
    assert as_commit(text) is None
    assert as_commit("ABCDEF0123" * 4) == "abcdef0123" * 4


ECHO = {
    "repository": {"full_name": "up/stream"},
    "pull_request": {"number": 7, "head": {"sha": "a" * 40}, "labels": [{"name": "x"}]},
}
TWISTED = {
    "the repository is a list": ({"repository": []}, {"upstream_repo": UNREADABLE}),
    "the repository is a number": ({"repository": 5}, {"upstream_repo": UNREADABLE}),
    "the head is a text": (
        {"pull_request": {"number": 9, "head": "f" * 40, "labels": []}},
        {"pr_number": 9, "head_sha": UNREADABLE, "labels": frozenset()},
    ),
    "the labels are a table": (
        {"pull_request": {"number": 9, "labels": {"name": "x"}}},
        {"pr_number": 9, "head_sha": None, "labels": frozenset({UNREADABLE})},
    ),
    "one label is a text": (
        {"pull_request": ECHO["pull_request"] | {"labels": [{"name": "x"}, "ciflow/oot/npu"]}},
        {"labels": frozenset({"x", UNREADABLE})},
    ),
    "the pull request is a number": (
        {"pull_request": 7},
        {"pr_number": UNREADABLE, "head_sha": UNREADABLE, "labels": frozenset({UNREADABLE})},
    ),
}


@pytest.mark.parametrize(("twist", "echoed"), TWISTED.values(), ids=TWISTED)
def test_one_member_of_the_wrong_type_hides_no_other_of_the_echo(twist, echoed):
    echo = read(body() | {"payload": ECHO | twist}).echo
    whole = {"upstream_repo": "up/stream", "pr_number": 7, "head_sha": "a" * 40, "labels": frozenset({"x"})}
    assert {name: getattr(echo, name) for name in whole} == whole | echoed


@pytest.mark.parametrize("payload", [None, {}, [], "", 0])
def test_an_echo_that_says_nothing_contradicts_nothing(payload):
    assert read(body() | {"payload": payload}).echo == Echo()


@pytest.mark.parametrize(
    ("line", "kept", "flags"),
    [
        (12, 12, {}),
        ("12", 12, {}),
        (None, None, {}),
        ("a", None, {"line_dropped": True}),
        (1.5, None, {"line_dropped": True}),
        ([], None, {"line_dropped": True}),
    ],
)
def test_a_line_that_is_no_number_loses_no_report(line, kept, flags):
    report = read(failed_tests=[{"name": "t", "line": line}])
    assert report.job["failed_tests_json"][0].get("line") == kept
    assert report.flags == flags
