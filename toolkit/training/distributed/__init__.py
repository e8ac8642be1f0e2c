"""What ranks do together: form the process group, agree at each step, report stragglers.

Collectives that belong to saving are in `checkpoint.collective`.
"""
