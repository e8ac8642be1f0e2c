"""The cluster's cost, divided over its jobs and users.

Belongs here: reading sacct, the ledger and EC2, dividing instance time into charges,
the report.
Does not: price lists (`toolkit.prices`), and writing the ledger (reconcile does).

sacct gives attempts, the S3 ledger and DescribeInstances give instances, catalogue and
spot history give prices. Allocation splits every instance-second into charges, and the
report groups them. Amounts are whole micro-dollars, so the charges of an instance sum
to its cost exactly.
"""
