"""What a run may reach: policies, rules, hosts, paths and addresses. Pure, but for the tables of
addresses.
"""
