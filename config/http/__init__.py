"""What every HTTP request passes before a view, and what answers where no view does. Settings
and addresses are elsewhere, views too.
"""
