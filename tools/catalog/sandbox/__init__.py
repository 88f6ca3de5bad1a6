"""What sandboxed tools may see and reach: profiles, paths, hosts, credentials, content schemas.
Runs are enforced by the sandbox itself.
"""
