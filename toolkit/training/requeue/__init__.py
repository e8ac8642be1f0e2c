"""Decisions of the batch script: whether a job starts, comes back, is held, or is over.

`start_check` runs before the step and `end_of_attempt` after it; causes, rules and budgets belong
here too. Code of the workers does not: they never import this room, except for the recorder on rank
0.
"""
