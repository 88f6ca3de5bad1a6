"""The capability graph: which tool's output fits which tool's input, by names of values and by
schemas, and the chains that follow from it. Which tools a caller may use is decided elsewhere.
"""
