"""What one application shares: its state, its gate and metrics, and the bound on waits."""
