"""The engine's parts, and every change that they make to Slurm and EC2, except launches.

Here: actions on nodes, terminations, notices to jobs, giving nodes back.
Not here: the decision which action is due (see `reconciler` and `power_save`).
"""
