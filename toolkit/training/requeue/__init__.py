"""Decisions of the batch script: whether a job starts, is requeued or held, or has ended.

`start_check` runs before the step, `end_of_attempt` after it. Causes, rules and budgets belong here
too. Code of the workers does not; only the recorder on rank 0 imports this room.
"""
