"""The engine's parts, and its actions on nodes, jobs and instances, except launches.

Here: actions on nodes, terminations, notices to jobs, giving nodes back.
Not here: the decision which action is due (see `reconciler` and `power_save`); the end of a failed
launch's own instances (see `launch.launch_call`).
"""
