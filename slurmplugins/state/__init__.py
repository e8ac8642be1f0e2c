"""The head's state files, which its programs share. All are safe to lose while no launch runs.

Here: the journal, unavailable offerings, queue times, launch budgets, the persistent clock.
Not here: state of one program alone (see `reconciler.pass_state`).
"""
