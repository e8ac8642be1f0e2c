"""Carries out actions on Slurm and EC2, one at a time or many, and tells jobs about them.

Here: the parts of the engine, and every change of Slurm or EC2 but a launch. Not here: decisions.
"""
