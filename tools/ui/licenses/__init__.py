"""Pages of license tiers and of organizations' licenses, with previews of the impact of changes."""
