"""Messages as Arrow columns: names and types, records to columns, and columns to records."""
