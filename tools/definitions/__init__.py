"""Tool definitions and their parts: parsed, validated, compared, signed. Pure: nothing here reads a
database, a file or the network.
"""
