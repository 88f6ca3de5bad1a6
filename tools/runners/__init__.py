"""One file per tool type, one protocol. A runner knows how, never whether."""
