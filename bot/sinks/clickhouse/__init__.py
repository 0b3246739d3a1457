"""The sink kind `clickhouse`: rows of tables."""
