"""Generators of the synthetic conversations that caesura-tiny is trained and tested on."""
