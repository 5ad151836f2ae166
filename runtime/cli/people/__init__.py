"""`caesura people`: questions and calls that wait for a person."""
