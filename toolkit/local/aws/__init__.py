"""What moto leaves out of AWS, laid over its tables: see `layer.cloud` for the whole."""
