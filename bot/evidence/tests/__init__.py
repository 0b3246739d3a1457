"""Results of every test case: read from reports of any producer, merged by job, judged and counted."""

from __future__ import annotations
