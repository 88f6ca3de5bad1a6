"""An organization's tools, in memory by revision and in rows: registered, changed, versioned,
found. What a caller may do with them is `policy`.
"""
