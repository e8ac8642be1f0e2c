"""Adapter to AWS: EC2, S3 and Secrets Manager behind ports, tags, error codes, rates.

Here: how AWS is asked and told. Not here: what to ask or tell it.
"""
