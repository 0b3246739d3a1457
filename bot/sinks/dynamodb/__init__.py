"""The sink kind `dynamodb`: items of tables."""
