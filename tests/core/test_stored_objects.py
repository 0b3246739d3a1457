"""Keys of objects lead nowhere else, whatever their parts are; what JSON has no number for is a text."""

import json

import pytest

from bot.db.exports import json_line, object_key, repo_key


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("workflow_job", "org", 7), "workflow_job/org/7"),
        (("..", "x"), "%2E%2E/x"),
        ((".", ""), "%2E/%00"),
        (("a/../b",), "a%2F..%2Fb"),
        (("a b\n\0",), "a%20b%0A%00"),
        (("ä",), "%C3%A4"),
    ],
)
def test_no_part_of_a_key_leads_out_of_its_place(parts, key):
    assert object_key(*parts) == key


def test_long_parts_are_cut_and_still_differ():
    one, other = object_key("x" * 300 + "1"), object_key("x" * 300 + "2")
    assert one != other
    assert len(one) == len(other) == 200


def test_a_repository_is_two_parts():
    assert repo_key("org/name") == "org/name"
    assert repo_key("nothing") == "nothing/%00"


def test_numbers_that_json_has_not_are_texts():
    line = json_line({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": -float("inf")}})
    assert json.loads(line) == {"a": "nan", "b": ["inf", 1.5], "c": {"d": "-inf"}}
