"""The generate_image tool: a diffusion model in a worker process, or a service."""
