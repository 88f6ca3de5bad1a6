"""The first page, the search of pages, and what was used."""
