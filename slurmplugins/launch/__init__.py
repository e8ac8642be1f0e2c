"""Launch instances for a plan's node requests: fallback order, batches, retries, shared results.

Here: everything between a plan and EC2's answer.
Not here: the decision which nodes need an instance (see `power_save`).
"""
