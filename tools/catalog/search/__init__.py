"""Search for tools by words, by similarity, and by questions that led to them."""
