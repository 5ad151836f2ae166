"""Applications of several models on real engines, planned and measured."""
