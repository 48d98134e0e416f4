"""Messages as Arrow columns: their names and types, records to columns, and columns to records again."""
