"""What the cluster cost, and for whom.

sacct → attempts, S3 ledger + DescribeInstances → instances, catalogue + spot history → prices; then
allocation splits every instance-second into charges, and the report groups them. Amounts are whole
micro-dollars, so that the charges of an instance sum to its cost exactly.
"""
