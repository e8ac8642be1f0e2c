"""Usage of clusters from Slurm's accounting, in Parquet files.

Belongs here: dumps and records in stores, reports of them, charges by SQL, closed days.
Does not: how facts are gathered, and the exact rules (`toolkit.accounting`); prices
(`toolkit.prices`).

Text becomes Parquet once, a folder for each day. DuckDB answers from there, without a server.
Dumps need neither AWS nor a cluster. DuckDB is imported when a function needs it.
"""
