"""The sink that writes rows into a table of PostgreSQL, each log exactly once."""
