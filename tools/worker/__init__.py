"""The Celery worker's side: tasks, leases, polling, the reaper, and what time takes away. What
happens to one call is `execution`.
"""
