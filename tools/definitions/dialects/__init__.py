"""Every form in which tools, services and servers may be handed over (ruling 14). Pure."""
