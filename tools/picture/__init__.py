"""Pictures: charts from Vega-Lite, drawings from SVG, and what a diffusion model paints.

What is drawn is checked here and drawn in worker processes, which may hang or crash alone.
"""
