"""Every format of tools, services and servers that can be imported (ruling 14). Pure: what is
imported is saved by `tools.catalog.imports`.
"""
