"""What runs on the cluster, called by Slurm or systemd: boto3 and the standard library only."""

__all__ = ["__version__"]

__version__ = "0.1.0"
