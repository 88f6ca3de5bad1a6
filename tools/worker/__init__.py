"""The Celery workers: tasks, wake-ups, polling, the reaper, and retention. The execution of one
call is in `execution`.
"""
