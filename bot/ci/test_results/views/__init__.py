"""Pages and JSON of test results: which tests failed, whose failures they are, how a test fared before."""

from __future__ import annotations
