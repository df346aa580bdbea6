"""Figures, the analysis behind them, the HTML page, and what the metrics say in words."""
