"""Measuring engines: how long they load, and how long their steps take."""
