"""The cloud port and its EC2 adapter."""
