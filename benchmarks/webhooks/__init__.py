"""The parts of `bench ingest`, each of which answers one question about webhooks."""
