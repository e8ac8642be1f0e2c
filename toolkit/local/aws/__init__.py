"""What moto leaves out of AWS, laid over its tables: see `local.cloud` for the whole."""
