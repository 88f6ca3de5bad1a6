"""Agents that plan before they act: the language of plans, the planner's prompts, and what
became of a plan.
"""
