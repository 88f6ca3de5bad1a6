"""Organizations, people, agents and their service accounts: who calls, by which token, and what
was granted to whom. What a caller may use is decided in `policy`.
"""
