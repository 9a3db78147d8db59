"""Optional parts of a swarm: storages, computed values, pipelines, outlines, advisors, operators, diagrams.

Stability: experimental.
"""
