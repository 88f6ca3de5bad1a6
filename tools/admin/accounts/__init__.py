"""Organizations, people, agents and their logins in Django's administration."""
