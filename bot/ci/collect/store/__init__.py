"""What collecting keeps in the database: the statements."""
