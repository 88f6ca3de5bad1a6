"""API of requests to the product's agents. Agent accounts are in `accounts`."""
