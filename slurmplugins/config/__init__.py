"""Configuration and fixed paths: burst.json on the head, node.json on a compute node.

Here: reading and checking these files, and the paths of all other files.
Not here: rendering them (see `toolkit.render`).
"""
