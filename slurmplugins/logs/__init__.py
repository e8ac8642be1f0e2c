"""The log shipper: from log files and the journal to the instance's stream in CloudWatch Logs.

Belongs here: reading lines, removing secrets, sending, and the places that were reached.
Does not: writing logs (`system.logger`), the calls themselves (`cloud.log_stream`).
"""
