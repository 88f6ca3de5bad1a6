"""Which tool can go on from what another gave: by the names of values, and by their schemas."""
