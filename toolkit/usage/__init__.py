"""Usage of clusters from Slurm's accounting, in Parquet files.

Belongs here: reading dumps of sacct and records into stores, reports from the store of dumps, the
charges by SQL, closed days and reports of them.
Does not: how facts are gathered, and the exact rules (`toolkit.accounting`); prices
(`toolkit.prices`).

Text becomes Parquet once, a folder for each day. DuckDB answers from there, without a server.
Dumps need neither AWS nor a cluster. DuckDB is imported when a function needs it.
"""
