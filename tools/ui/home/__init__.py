"""The home page, the search of pages and tools, and the usage page."""
