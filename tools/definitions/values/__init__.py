"""Values that definitions write as text: durations, schedules, versions, JSON Pointers; and strict
readers of JSON and YAML. They know nothing of tools.
"""
