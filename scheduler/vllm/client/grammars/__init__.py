"""Grammars of turns, as structural tags of vLLM's grammar library XGrammar."""
