"""The local cloud: the AWS API on this machine, with a Linux machine behind each instance."""
