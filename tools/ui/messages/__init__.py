"""Pages of sent messages, their channels, and the user's inbox."""
