"""Running tool calls: in parallel, within limits, with every failure as data."""
