"""Which lines of a comment are commands."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.commands.syntax import (
    LONGEST_LINE,
    MOST_COMMANDS,
    VERBS,
    Command,
    may_hold_command,
    parse_commands,
)


def read(body):
    """Verb and backends of each command; what is wrong instead of a verb."""
    return [(one.verb or one.problem, *one.backends) for one in parse_commands(body)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("/oot help", [("help",)]),
        ("/oot", [("help",)]),
        ("/OOT help", []),
        ("/oot HELP", [("help",)]),
        ("/oot status", [("status",)]),
        ("/oot status npu", [("status", "npu")]),
        ("/oot run npu tpu", [("run", "npu", "tpu")]),
        ("/oot run npu, tpu", [("run", "npu", "tpu")]),
        ("/oot run org/npu-backend", [("run", "org/npu-backend")]),
        ("/oot rerun", [("rerun",)]),
        ("/oot rerun npu npu", [("rerun", "npu")]),
        ("/oot cancel", [("cancel",)]),
        ("Thanks!\n/oot rerun\nand more", [("rerun",)]),
        ("/oot rerun\r\n/oot status\r\n", [("rerun",), ("status",)]),
        ("/oot rerun   \n\n\n/oot status", [("rerun",), ("status",)]),
        ("please /oot rerun", []),
        ("/ootbot rerun", []),
        ("/oot-rerun", []),
        ("oot rerun", []),
        ("`/oot rerun`", []),
        ("``\n/oot rerun\n``", []),
        ("```\n/oot rerun\n```", []),
        ("~~~sh\n/oot rerun\n~~~", []),
        ("```\n/oot rerun\n~~~\n/oot rerun", []),
        ("````\n```\n/oot rerun\n````\n", []),
        ("text\n\n    /oot rerun\n", []),
        ("> /oot rerun", []),
        ("> quoted\n/oot rerun", []),
        ("> quoted\n\n/oot rerun", [("rerun",)]),
        ("- /oot rerun", []),
        ("- item\n/oot rerun", []),
        ("1. item\n   /oot rerun", []),
        ("# /oot rerun", []),
        ("<!-- /oot rerun -->", []),
        ("<!--\n/oot rerun\n-->", []),
        ("a <!--\n/oot rerun\n--> b", []),
        ("<pre>\n/oot rerun\n</pre>", []),
        ("<details>\n/oot rerun\n</details>", []),
        ("**/oot rerun**", []),
        ("[/oot rerun](https://example.org)", []),
        ("\\/oot rerun", []),
        ("&#47;oot rerun", []),
        ("| a |\n|---|\n| /oot rerun |", []),
        ("", []),
    ],
)
def test_a_command_is_a_plain_line_that_begins_with_its_word(body, found):
    assert read(body) == found


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/oot dance", "no such command"),
        ("/oot run", "name the backends"),
        ("/oot run --all", "only rerun has an option"),
        ("/oot rerun --force npu", "only rerun has an option"),
        ("/oot status npu tpu", "name one backend"),
        ("/oot ignore", "which backend and why"),
        ("/oot ignore npu", "which backend and why"),
        ("/oot run " + " ".join(f"d{n}" for n in range(21)), "at most 20"),
    ],
)
def test_what_cannot_be_carried_out_as_written_says_why(line, problem):
    (command,) = parse_commands(line)
    assert command.verb == ""
    assert problem in command.problem


def test_ignore_takes_one_backend_and_the_rest_is_the_reason():
    (command,) = parse_commands("/oot ignore npu the lab  moves @everybody this week")
    assert command == Command(
        text="/oot ignore npu the lab  moves @everybody this week",
        verb="ignore",
        backends=("npu",),
        reason="the lab moves @everybody this week",
    )


def test_rerun_all_means_every_job():
    (command,) = parse_commands("/oot rerun npu --all")
    assert (command.backends, command.everything) == (("npu",), True)


def test_only_the_first_commands_of_a_comment_count():
    assert len(parse_commands("/oot status\n" * 50)) == MOST_COMMANDS


def test_a_line_is_kept_only_so_far():
    (command,) = parse_commands("/oot ignore npu " + "x" * 3_000)
    assert len(command.text) == LONGEST_LINE


@given(st.text(max_size=300))
@settings(max_examples=200)
def test_any_text_is_read_without_an_error(text):
    for command in parse_commands(f"{text}\n/oot {text}"):
        assert command.verb in VERBS or command.problem


@given(st.text(max_size=200))
def test_what_is_skipped_unread_holds_no_command(text):
    if not may_hold_command(text):
        assert parse_commands(text) == ()


LAZY = f"{'> ' * 15}a\n" + "b\n" * 5_000  # a quote of quotes that goes on without its signs


@pytest.mark.parametrize("piece", ["> ", "- ", "[", "*a ", "`", "<a ", "\\", "![](", "![", "[[](", "|", LAZY])
def test_a_hostile_comment_of_full_length_is_read_in_a_moment(piece):
    much = piece * (65_000 // len(piece))
    began = time.process_time()
    assert parse_commands(f"/oot status\n{much}") in {(), (Command(text="/oot status", verb="status"),)}
    assert time.process_time() - began < 3  # minutes where its parts are looked at again and again


def test_a_paragraph_too_long_to_be_read_hides_no_other():
    assert read("/oot help\n" + "x " * 5_000 + "\n\n/oot status") == [("status",)]
