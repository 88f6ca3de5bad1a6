"""What runs inside the sandbox, of the standard library alone. Nothing here is trusted after a tool
has run.
"""
