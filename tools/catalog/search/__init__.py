"""Tools found by words, by likeness, and by the questions that led to them."""
