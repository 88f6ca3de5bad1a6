"""Pages of the tool catalog: list, tool, versions, import, export. `editor` edits definitions."""
