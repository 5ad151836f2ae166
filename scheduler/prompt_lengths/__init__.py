"""Output lengths from prompts: data, objectives, models, training and scores."""
