"""Budgets in US dollars: what accounts and projects cost, and what follows from it in Slurm.

A pass measures what instances cost since the last one, compares it with the budgets, and moves
limits in Slurm. Slurm alone enforces those of accounts, so they hold also while this code is away.
It has none for projects: their jobs are held one by one.

`periods`, `meter`, `memory`, `figures`, `plan` and `project_holds` do no input or output. `run`
reads, acts and remembers. The burst budget of a waiting job of racks is the governor's, and another
thing.
"""
