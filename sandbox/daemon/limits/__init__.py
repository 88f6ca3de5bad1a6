"""Resource limits of runs: control groups, file operations, time, memory and quotas of shared
paths.
"""
