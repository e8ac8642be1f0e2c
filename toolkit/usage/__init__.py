"""Usage of clusters from Slurm's accounting: a store of Parquet files, and its answers.

Belongs here: reading dumps of sacct and records into stores, reports of dumps, charges by SQL,
closed days and their reports.
Does not: how facts are gathered, and the exact rules (`toolkit.accounting`); prices
(`toolkit.prices`).

Text becomes Parquet once, a folder for each day. DuckDB answers from there, without a server.
Dumps need neither AWS nor a cluster. DuckDB is imported when a function needs it.
"""
