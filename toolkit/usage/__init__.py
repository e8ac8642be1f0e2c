"""Usage of clusters from Slurm's accounting: a store of Parquet files, and its answers.

Belongs here: reading dumps and pages of sacct into the store, reports from the store, the
charges by SQL, closed days.
Does not: the facts of this toolkit's own cluster and the exact rules (`toolkit.accounting`),
prices (`toolkit.prices`).

Text becomes Parquet once, a folder for each day of submission. DuckDB answers from there. It
needs no AWS, no cluster and no server. DuckDB is imported when a function needs it.
"""
