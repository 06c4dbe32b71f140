"""The two clients, what they share, and what a job, a schedule, an error is in Python."""
