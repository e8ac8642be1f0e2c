"""What runs on the cluster, called by Slurm or systemd: boto3 and the standard library only.

Programs on the head: resume, suspend, resume_fail, prolog, reconcile, head_boot, head_report,
mlflow_runs. Programs on a compute node: node_boot, node_agent. Below them, each importing only
from those after it:

head        puts the engine together, runs the playbook, reports to people
reconciler  the desired state against the actual one
power_save  what ResumeProgram and SuspendProgram do
launch      from a plan to running instances
node        first boot and agent of a compute node
execution   carries out actions on Slurm and EC2
state       the head's state files, all safe to lose
slurm       adapter to Slurm
cloud       adapter to AWS
system      clock, files, processes, threads, logs
config      burst.json, node.json, paths
model       frozen values
errors      every error, in one tree
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
