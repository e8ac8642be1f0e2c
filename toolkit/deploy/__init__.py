"""Brings a cluster to the state of cluster.yaml, and deletes it.

Belongs here: images, the CloudFormation stack, the bundle, the head node, their status.
Does not: files on the head node (`toolkit.render`) and what instances run
(slurmplugins, ansible).
"""
