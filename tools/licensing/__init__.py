"""License files and tiers: install, compare, and preview changes. The gate that reads a license is
in `policy`.
"""
