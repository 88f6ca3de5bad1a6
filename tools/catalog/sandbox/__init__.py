"""What sandboxed tools may see and reach: profiles, paths, hosts, credentials, and content schemas."""
