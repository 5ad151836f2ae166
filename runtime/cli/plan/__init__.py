"""Commands that plan or simulate: plan, run, measure, simulate and replay."""
