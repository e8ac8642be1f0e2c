"""Records that make a run repeatable: code, packages, submission; and `replay`, which repeats it.

`gather` collects them when an attempt begins. The search for a similar run belongs here too. The
record of the training itself belongs in `recording`.
"""
