"""What-if: a stretch of a recording, simulated again under other policies, beside what was."""
