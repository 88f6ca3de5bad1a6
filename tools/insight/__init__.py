"""Read-only analysis: what-if, draft runs, recommendations, replay, the workflow simulator, reach,
and previews of changes.
"""
