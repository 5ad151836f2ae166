"""Telling calls from text that only mentions them, or that only begins like one."""
