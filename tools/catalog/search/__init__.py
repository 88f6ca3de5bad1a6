"""Search for tools by words, by similarity, and by questions that led to them. Which tools a caller
may see is decided in `policy`.
"""
