"""Pages and JSON of what was collected."""
