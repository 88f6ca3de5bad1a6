"""sandboxd: the process that starts runs, enforces their limits, and serves workers. It has
neither Django nor secrets.
"""
