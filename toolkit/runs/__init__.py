"""MLflow's runs and the folders behind them, as people's commands read them."""
