"""Channels, messages that are sent to them, and the inbox: written down first, delivered then.
The tool that sends one is a runner.
"""
