"""The head's state files, shared by its programs, all of them safe to lose.

Here: the journal, unavailable offerings, queue times, launch budgets, the time they are kept in.
Not here: what one program alone remembers (see `reconciler.pass_state`).
"""
