"""A job from options, and jobs from files."""
