"""Pages of approvals: held calls, and changes that upstreams made to tools."""
