"""The training loop, its settings, checkpoints and run folder."""
