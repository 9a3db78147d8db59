"""What a swarm may use beside its agents: storages, computed values, pipelines, outlines, advisors, diagrams.

Stability: experimental.
"""
