"""Pages of the tool catalog: list, tool, versions, import and export. `editor` edits definitions."""
