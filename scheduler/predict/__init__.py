"""What is expected of what has not happened yet, learned from what has."""
