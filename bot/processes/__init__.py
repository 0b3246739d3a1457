"""`ootbot serve` as three processes: one listens and takes webhooks, one does the work, one makes pages."""
