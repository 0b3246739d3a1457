"""Where a test failed, read of the texts that test runners write."""

from __future__ import annotations

import pytest

from bot.evidence.tests.job_results import SourceLine, find_source_line


@pytest.mark.parametrize(
    ("file", "line", "text", "expected"),
    [
        ("test_x.py", None, "test_x.py:41: in f\n    g()\nlib/g.py:9: AssertionError", ("test_x.py", 41)),
        ("", None, "/src/tests/op_test.cc:42\nExpected equality", ("/src/tests/op_test.cc", 42)),
        ("", None, "op_test.cc:42: Failure", ("op_test.cc", 42)),
        ("", None, "thread 't' panicked at src/lib.rs:10:5:\nassertion failed", ("src/lib.rs", 10)),
        ("", None, "thread 't' panicked at 'a: b', src/lib.rs:10:5", ("src/lib.rs", 10)),
        ("", None, "    add_test.go:12: 3 is not 4", ("add_test.go", 12)),
        ("t/test_x.py", None, 'File "D:\\a\\p\\t\\test_x.py", line 3, in f', ("D:/a/p/t/test_x.py", 3)),
        ("op_test.cc", 7, "no place", ("op_test.cc", 7)),
        ("op_test.cc", 7, "/x/other.cc:9: Failure", ("op_test.cc", 7)),
        ("op_test.cc", None, "/x/other.cc:9: Failure", None),
        ("", 7, "at 12:30:05 on 127.0.0.1:8080", None),
        ("", None, "../../etc/passwd.txt:3: x", None),
        ("", None, "a.py:0: x\nb.py:99999999999: x", None),
        ("", None, "x" * 4096 + ":1: x", None),
    ],
)
def test_where_a_test_failed_is_read_of_the_usual_texts(file, line, text, expected):
    assert find_source_line(file, line, text) == (expected and SourceLine(*expected))
