"""The seccomp filter that every run lives under, and the counting of its operations on files:
which system calls a level has, with which arguments.
"""
