"""The execution pipeline of one call: admitted, accepted, claimed, run, finished, answered. Calls
that make calls are `workflows`, the processes that run them `worker`.
"""
