"""License tiers and licenses of organizations, with what a change of one would do."""
