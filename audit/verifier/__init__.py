"""The verifier that anyone can read and run without this product: one file of the
standard library.
"""
