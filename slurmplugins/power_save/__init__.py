"""Do the work of ResumeProgram and SuspendProgram: prepare, plan, carry out.

Here: the plan of one ResumeProgram process, and the circuit breaker of pools.
Not here: calls to EC2 (see `launch` and `execution`).
"""
