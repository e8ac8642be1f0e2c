"""First boot and agent of a compute node.

Here: what runs on the instance itself.
`users.py` also serves the head's playbook.
Not here: anything that the head decides.
"""
