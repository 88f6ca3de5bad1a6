"""Values that definitions write as text: durations, schedules, versions, rates, recipients, and
strict JSON.
"""
