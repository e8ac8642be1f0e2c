"""What ResumeProgram and SuspendProgram do: read, plan, carry out.

Here: the plan of one run and its guard against bad pools. Not here: calls to EC2 (see `launch`).
"""
