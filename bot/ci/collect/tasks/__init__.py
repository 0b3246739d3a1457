"""The tasks of collecting."""
