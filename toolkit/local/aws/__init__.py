"""AWS behaviour that moto leaves out, laid over moto's tables (`local.cloud` assembles it).

Belongs here: EC2, FSx, SSM, CloudFormation and Secrets Manager as the toolkit uses
them.
Does not: the machines behind instances (`local.machines`).
"""
