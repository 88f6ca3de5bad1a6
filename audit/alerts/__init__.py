"""Rules that find records a person should look at, and the delivery of alerts to an
organization's channels. It has no pages.
"""
