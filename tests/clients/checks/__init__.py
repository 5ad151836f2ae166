"""The checks, a module for each library. Importing one registers its checks."""
