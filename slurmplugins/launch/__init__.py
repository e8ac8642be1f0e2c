"""From nodes that jobs wait for to running instances: fallback order, batches, retries.

Here: everything between a plan and EC2's answer. Not here: which nodes need an instance at all.
"""
