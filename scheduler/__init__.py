"""The scheduler: which request runs next. `vllm` is the adapter to the engine."""
