"""Tool groups: their tree, members, opening windows, and who holds them."""
