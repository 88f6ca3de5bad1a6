"""Notification channels, messages that are sent to them, and the inbox. Messages are stored first
and then delivered; the tool that sends one is a runner.
"""
