"""The cluster's logs in CloudWatch, for people's commands.

Belongs here: finding the streams of a node or an instance, reading and following their lines.
Does not: sending logs (`slurmplugins.logs`), the log group itself (`toolkit.deploy`).
"""
