"""SamuLLM's experiments with plans, simulated on 8 A100-80G: models, applications, rows, tables."""
