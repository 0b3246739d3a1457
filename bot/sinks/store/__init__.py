"""Statements about sinks: marks, states, refused rows, pages of keys, visibility."""
