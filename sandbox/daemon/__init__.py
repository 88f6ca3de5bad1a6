"""sandboxd: the process that starts runs, holds their limits, and answers to workers. It has
neither Django nor secrets.
"""
