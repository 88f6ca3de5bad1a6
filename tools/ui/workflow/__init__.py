"""States of workflows, drawn and walked through, and why a caller may use a tool or not."""
