"""Questions for agents of the product over the API. Agents as accounts are `accounts`."""
