"""The worker: pulls runs and carries them out."""
