"""The code that runs on the cluster, started by Slurm or systemd. Imports boto3 and the standard
library only.

Here, at the root: programs and the error tree, nothing else. The rest is in rooms.
Programs on the head: resume, suspend, resume_fail, prolog, reconcile, head_boot, head_report,
mlflow_runs, backup, head_users, login_as. Programs on a compute node: node_boot, node_agent,
node_credentials, node_ident, job_token. Programs on a login node: login_boot, login_agent,
node_ident, login_as.

Each room imports only from rooms below it.

head        Assembles the engine, runs the playbook, reports to people.
reconciler  Compares the desired state with the actual one.
power_save  Does the work of ResumeProgram and SuspendProgram.
launch      Turns a plan into running instances.
node        First boot and agent of a compute node.
execution   Carries out actions on Slurm and EC2.
state       The head's state files, all safe to lose.
slurm       Adapter to Slurm.
cloud       Adapter to AWS.
system      Clock, files, processes, threads, logs.
config      burst.json, node.json, paths.
model       Frozen values.
errors      Every error, in one tree.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
