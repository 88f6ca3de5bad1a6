"""Read-only analysis: what-if, recommendations, replay, the workflow simulator, reach, and previews
of changes.
"""
