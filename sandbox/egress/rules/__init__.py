"""Egress rules of a run: policies, rules, hosts, paths and addresses. Pure, but for the tables of
addresses.
"""
