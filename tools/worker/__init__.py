"""The Celery worker: tasks, leases, polling, the reaper, and retention. The execution of one call
is in `execution`.
"""
