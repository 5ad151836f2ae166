"""The default policy against the others over workloads, machines and loads: is it ever worse?"""
