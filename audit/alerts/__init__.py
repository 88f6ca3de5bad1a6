"""Alert rules that find suspicious records, and the delivery of alerts to an organization's
notification channels. It has no pages.
"""
