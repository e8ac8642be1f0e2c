"""Account budgets: what accounts cost, and the limits in Slurm that follow from it.

A pass measures what instances cost since the last one, compares it with the budgets, and moves
limits in Slurm. Slurm alone enforces them, so they hold also while this code is away.

`periods`, `meter`, `memory`, `ladder` and `plan` do no input or output. `run` reads, acts and
remembers. The burst budget of a waiting job of racks is the governor's, and another thing.
"""
