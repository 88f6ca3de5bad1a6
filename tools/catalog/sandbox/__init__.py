"""What sandboxed tools may see and reach: profiles, paths, hosts, credentials, content schemas."""
