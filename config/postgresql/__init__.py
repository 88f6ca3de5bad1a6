"""Django's database backend for PostgreSQL, by which a float stays a float in a column of JSON."""
