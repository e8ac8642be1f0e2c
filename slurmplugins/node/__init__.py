"""First boot and agent of a compute node or a login node.

Here: what runs on the instance itself.
`users.py` and `sessions.py` also serve the head's playbook.
Not here: anything that the head decides.
"""
