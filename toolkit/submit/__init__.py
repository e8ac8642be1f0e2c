"""Checks a batch script and hands it to sbatch, with nothing hidden."""
