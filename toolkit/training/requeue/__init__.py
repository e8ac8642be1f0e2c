"""Decide, in the batch script, whether a job starts, comes back, is held, or is over.

`start_check` runs before the step and `end_of_attempt` after it. Workers do not import this room.
"""
