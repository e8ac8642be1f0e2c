"""One pass of reconcile: the desired state against the actual one, of Slurm and of EC2.

Here: the rules (pure), what they see, what a pass remembers.
Not here: how an action is carried out.
"""
