"""What is called by these words? Titles of any kind, found by the beginnings of their words."""
