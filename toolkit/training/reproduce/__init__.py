"""What it takes to run the same again: code, packages, submission; and to find a similar run.

Everything is gathered at the start of a run (`gather`) and used by `replay`.
"""
