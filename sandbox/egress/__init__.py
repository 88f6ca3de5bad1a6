"""The egress broker: the one process through which runs reach other machines. It applies the rules
of each run.
"""
