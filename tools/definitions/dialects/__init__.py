"""Every format of tools, services and servers that can be imported (ruling 14). Pure."""
