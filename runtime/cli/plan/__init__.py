"""Planning applications of several models, and running plans."""
