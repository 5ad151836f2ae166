"""Pictures: charts from Vega-Lite, drawings from SVG, and images by a diffusion model.

Input is checked here and drawn in worker processes, which may hang or crash on their own.
"""
