"""What is red now: across upstreams and backends, since when, whose, and what is being done about it."""
