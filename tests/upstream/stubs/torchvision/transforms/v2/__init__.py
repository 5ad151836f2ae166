"""The second version of the transforms: here the same functions."""
