"""What reads much and changes nothing: what-if, recommendations, replay, walks, reach and the
effects of changes before they are made.
"""
