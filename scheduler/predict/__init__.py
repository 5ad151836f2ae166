"""Predictors of output lengths, result lengths, pauses and the number of calls of sessions."""
