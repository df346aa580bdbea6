"""Training: one loop, its settings, its checkpoints and its run folder."""
