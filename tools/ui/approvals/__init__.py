"""What waits for a person: held calls, and changes that upstreams made to tools."""
