"""`caesura predict`: predictors of output lengths, trained and measured."""
