"""The verifier that anyone can read and run without this product: one file, standard library and
`cryptography` alone.
"""
