"""What a run may use, counted and held: control groups, operations on files, time, memory and
quotas of shared paths.
"""
