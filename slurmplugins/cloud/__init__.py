"""The adapter to AWS: EC2, S3 and Secrets Manager behind ports, tags, error codes, rate limits.

Here: calls to AWS, their requests and answers, their errors and limits.
Not here: decisions about instances.
"""
