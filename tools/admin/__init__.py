"""Django's administration of the product's rows, each within its own organization. It calls
actions, as pages and the API do, and decides nothing.
"""
