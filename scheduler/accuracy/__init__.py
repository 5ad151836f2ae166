"""How good predictions were: what was predicted against what came, by predictor and quantity."""
