"""Configuration and fixed paths: burst.json on the head, node.json on a compute node.

Here: reading and checking them. Not here: rendering them (see `toolkit.render`).
"""
