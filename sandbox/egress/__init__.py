"""The egress broker: the one process through which runs reach other machines. It decides by the
rules that came with a run.
"""
