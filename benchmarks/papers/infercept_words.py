"""Why InferCept's figures and ours differ: what the runs of `--quick` show, in words.

The numbers in them are of 300 s traces with one seed.
"""

CLAIMS_WHY = {
    "rate": "vLLM saturates near 0.7/s here: 9 of 10 tokens that it computes are recomputed, for"
    " sessions of ve make 28 calls; and copies beside steps cost nothing",
    "gain": "beyond vLLM's saturation it grows with the length of the trace",
    "order": "20 GB/s take 46 us for a token out and in, computing it again takes 78 us: even a"
    " Swap that waits beats recomputation; a scattered block costs our link nothing extra",
}
"""Of section 5.1, 6B."""

STEPS_WHY = {
    ("ImprovedDiscard", 0.8): "sessions with many calls gain (ve 0.25 to 0.21 s/token), those with"
    " few lose (math 0.18 to 0.20): the median stays",
    ("ImprovedDiscard", 2.0): "sessions with many calls gain (ve 2.1 to 1.2 s/token), those with"
    " few lose (math 1.2 to 2.3, qa 0.6 to 1.2), and they are the median",
    ("+ chunked recomputation", 0.8): "waste falls to a third, but 9 of 10 tokens are recomputed in"
    " both, and steps of 512 compute a fifth fewer per second than steps of 2,048",
    ("+ chunked recomputation", 2.0): "waste falls to a quarter; for the latency see 0.8/s",
    ("+ budgeted swap", 0.8): "the link carries nearly all beside steps: 5 % of the tokens are"
    " recomputed, where it was 90 %",
    ("+ budgeted swap", 2.0): "28 % of the tokens are recomputed, where it was 89 %",
    ("+ preserve by heuristic", 0.8): "little is left: recomputed tokens from 5 % to 2 %",
    ("+ preserve by heuristic", 2.0): "little is left: recomputed tokens from 28 % to 7 %",
    ("InferCept", 0.8): "it recomputes more than the heuristic, 6 % of the tokens for 2 %",
    ("InferCept", 2.0): "it recomputes more than the heuristic, 15 % of the tokens for 7 %",
}
"""Of Fig. 4, by step and rate."""

WASTE_WHY = {
    ("load", 0.8): "just beyond what vLLM sustains; with the drain, when sessions wait for their"
    " tools, it is 26 %",
    ("load", 2.0): "three times what vLLM sustains here",
    ("calls", 0.8): "9 of 10 tokens are recomputed; 36 % and 41 % at 0.3 and 0.4/s, drained",
    ("swap", 0.8): "it waits as long as the paper's, but 16 % of the memory is in use",
    ("held", 2.0): "ours gives way to who needs memory, and recomputes then: 76 % of its tokens",
    ("calls", 2.0): "three times what vLLM sustains here",
    ("swap", 2.0): "besides, it recomputes: Swap gives way too",
    ("whole", 2.0): "recomputation 2.6 and paused requests 2.0: 15 % of its tokens are recomputed",
}
"""Of the waste, by figure and rate."""
