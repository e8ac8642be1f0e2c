"""IAM as AWS evaluates it: who calls, what the call needs, what policies say, what is recorded.

Here belong policies, sessions, the requests that a call means, refusals and the record of rights.
The services themselves lie one folder above.
"""
