"""What tools that run in the sandbox may see and reach: profiles, paths, hosts, credentials, and
schemas of contents.
"""
