"""Who runs next. `records` are plain; `vllm` is the adapter to the engine."""
