"""A pass of reconcile: compare the desired state of nodes and instances with the actual one.

Here: the rules (pure), the snapshot that they see, the state that a pass keeps for the next.
Not here: the calls that carry an action out (see `execution`).
"""
