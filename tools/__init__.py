"""The product: what tools there are, who may call them, and what happens when they are called."""
