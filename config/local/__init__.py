"""How `make run` and `manage.py up` work on one machine: the supervisor, and the servers that it
starts from wheels. Production starts its processes by other means and needs nothing of this.
"""
