"""Do the work of ResumeProgram and SuspendProgram: read, plan, carry out.

Here: the plan of one run, and the circuit breaker against bad pools.
Not here: calls to EC2 (see `launch` and `execution`).
"""
