"""Evidence: what is written of each action, redacted and sealed. It knows nothing of tools, has
neither pages nor API, and could be shipped alone.
"""
