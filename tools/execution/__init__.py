"""The execution pipeline of one call: read `admit`, `accept`, `dispatch`, `claim`, `run`, `finish`
and `answer` in this order. Calls that make calls are `workflows`, the processes that run them
`worker`.
"""
