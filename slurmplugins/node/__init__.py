"""First boot and agent of a compute node.

Here: what runs on the instance itself.
Not here: anything that the head runs or decides.
"""
