"""License files and tiers: installed, compared, and what another one would change. The gate that
reads a license is `policy`.
"""
