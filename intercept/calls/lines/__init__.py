"""Calls written as lines, as in ReAct (Yao et al. 2023): where they end and what they say."""
