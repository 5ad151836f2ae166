"""Prompts that hold pictures, sounds and videos."""
