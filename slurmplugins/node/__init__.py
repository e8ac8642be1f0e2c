"""A compute node: its first boot and its agent.

Here: what runs on the instance itself. Not here: anything that the head runs or decides.
"""
